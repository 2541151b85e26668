"""Which models a new config may name, and on how many GPUs each replica: tried from the largest on, until the
plan says that one fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.planning import Device

FP8_FROM = (8, 9)
"""Compute capability with FP8 units (``config/gpu-8b.yaml``)."""

LEAST_REQUESTS = 4.0
"""A choice that holds fewer of its longest requests at once is passed over: it would queue at once."""


@dataclass(frozen=True)
class Choice:
    """A model on ``gpus`` devices a replica. ``download``: what its weights are on the hub. ``engine``: lines
    of the section `engine`, comments included, beyond what all choices have."""

    id: str
    source: str
    download: str
    gpus: int
    replicas: int
    engine: tuple[str, ...]


def gpu_choices(gpus: int, device: Device) -> Iterator[Choice]:
    """Choices from the largest model on; each with the fewest GPUs a replica first, and with all GPUs in
    use."""
    has_fp8 = device.capability >= FP8_FROM
    sizes = [size for size in (1, 2, 4, 8) if size <= gpus]
    if gpus >= 8 and has_fp8:
        yield Choice(
            "qwen3-235b-a22b-instruct",
            "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
            "236 GB",
            8,
            gpus // 8,
            (
                "# Cut in eight, an expert would be 192 wide, which its FP8 blocks of 128 do not divide.",
                "enable_expert_parallel: true",
                "placement: strict_pack",
                "kv_cache_dtype: fp8",
                "max_model_len: 32768",
                "max_num_seqs: 128",
                "max_num_batched_tokens: 4096",
            ),
        )
    common = (*precision(device), "max_model_len: 16384", "max_num_seqs: 64", "max_num_batched_tokens: 2048")
    for size in sizes:
        yield Choice("qwen3-32b", "Qwen/Qwen3-32B", "66 GB", size, gpus // size, common)
    eagle = (
        "# A draft head that was trained for this model: several tokens a step where its drafts hold.",
        "speculation:",
        "  method: eagle3",
        "  model: AngelSlim/Qwen3-8B_eagle3",
        "  num_speculative_tokens: 3",
    )
    for size in sizes:
        yield Choice("qwen3-8b", "Qwen/Qwen3-8B", "16 GB", size, gpus // size, (*common, *eagle))
    small = (*precision(device, small=True), "max_model_len: 8192", "max_num_seqs: 64")
    yield Choice("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", "0.3 GB", 1, gpus, small)


def precision(device: Device, *, small: bool = False) -> tuple[str, ...]:
    if device.capability >= FP8_FROM and not small:
        return ("# Weights are quantised while loading, to half their size.", "quantization: fp8")
    if not device.has_bfloat16:
        return ("# This GPU has no bfloat16.", "dtype: float16")
    return ()


def stand_in(capability: float) -> str:
    """The device of the plan's table that is planned instead of a GPU which the table lacks: of its
    generation or an older one. Its memory is then the GPU's own."""
    if capability >= 8.9:
        return "L4"
    return "A10G" if capability >= 8.0 else "T4"
