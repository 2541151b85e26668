"""Checks the names in ``options``: only vLLM arguments without a Promptly setting are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWNED_BY_PROMPTLY = frozenset({"model", "served_model_name", "host", "port", "api_key", "root_path"})
"""vLLM arguments that other settings or the builder set."""

OWN_SETTING: Mapping[str, str] = {
    "speculative_config": "speculation",
    "spec_method": "speculation.method",
    "spec_model": "speculation.model",
    "spec_tokens": "speculation.num_speculative_tokens",
    "enable_lora": "lora",
    "lora_modules": "lora.adapters",
    "max_loras": "lora.max_loras",
    "max_lora_rank": "lora.max_lora_rank",
    "max_cpu_loras": "lora.max_cpu_loras",
    "kv_offloading_size": "kv_offload.size_gib",
    "kv_offloading_backend": "kv_offload.backend",
}
"""vLLM arguments whose Promptly setting has another name."""


def refuse_taken(options: Mapping[str, Any], taken: Mapping[str, str]) -> None:
    """``taken``: the names of refused options (with ``_``), and the setting to use instead. vLLM reads ``-``
    as ``_``. Raises: ValueError: an option has a setting."""
    wrong = sorted(name for name in options if name.replace("-", "_") in taken)
    if not wrong:
        return
    settings = [taken[name.replace("-", "_")] for name in wrong]
    others = [own for name, own in zip(wrong, settings, strict=True) if own != name]
    hint = f" (use {', '.join(f'`{own}`' for own in others)})" if others else ""
    raise ValueError(f"`options` may not set {', '.join(wrong)}: Promptly has its own setting for it{hint}")
