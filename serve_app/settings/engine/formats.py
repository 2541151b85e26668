"""Number formats of the weights and of the KV cache."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from serve_app.settings.base import Frozen

QUANTIZATIONS = (
    "awq",
    "auto_awq",
    "awq_marlin",
    "gptq",
    "auto_gptq",
    "gptq_marlin",
    "fp8",
    "fp8_per_tensor",
    "fp8_per_channel",
    "fp8_per_block",
    "mxfp8",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "modelopt_mixed",
    "nvfp4_per_token",
    "mxfp4",
    "gpt_oss_mxfp4",
    "experts_int8",
    "int8_per_channel_weight_only",
    "moe_wna16",
    "torchao",
    "inc",
    "quark",
    "humming",
    "deepseek_v4_fp8",
    "online",
    "fbgemm_fp8",
    "fp_quant",
    "gguf",
)
"""The methods of vLLM 0.29, and ``gguf``, which a plug-in adds."""

IN_THE_CHECKPOINT = "is a property of the weights: quantize the model first (scripts/quantize.py), then"
QUANTIZATION_HINTS: Mapping[str, str] = {
    "int8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "w8a8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "int8_w8a8": f"INT8 W8A8 {IN_THE_CHECKPOINT} use 'compressed-tensors' or leave this out",
    "nvfp4": f"NVFP4 {IN_THE_CHECKPOINT} use 'modelopt_fp4' or 'compressed-tensors', or leave this out",
    "int4": f"INT4 {IN_THE_CHECKPOINT} use 'awq', 'gptq' or 'compressed-tensors', or leave this out",
}

KvCacheDtype = Literal[
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_inc",
    "fp8_ds_mla",
    "fp8_per_token_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
    "nvfp4_4over6",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
]


class FormatSettings(Frozen):
    """The part of an engine's settings about number formats."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str | None = Field(
        default=None, description="Default: the checkpoint's method. `fp8` quantizes while loading."
    )
    kv_cache_dtype: KvCacheDtype | None = None

    @field_validator("quantization")
    @classmethod
    def _known_quantization(cls, name: str | None) -> str | None:
        if name is None or name in QUANTIZATIONS:
            return name
        if name.lower() in QUANTIZATION_HINTS:
            raise ValueError(QUANTIZATION_HINTS[name.lower()])
        close = difflib.get_close_matches(name.lower(), QUANTIZATIONS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown quantization; {hint}expected one of: {', '.join(QUANTIZATIONS)}")
