"""Names of quantization methods and element types, and the bytes that one value takes.

The names are those of vLLM 0.29 (``vllm.model_executor.layers.quantization.QuantizationMethods`` and
``vllm.config.cache.CacheDType``); a test compares them with the installed vLLM.
"""

from __future__ import annotations

ELEMENT_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}

STORED_BYTES = {
    "F64": 8.0,
    "F32": 4.0,
    "F16": 2.0,
    "BF16": 2.0,
    "I64": 8.0,
    "I32": 4.0,
    "I16": 2.0,
    "I8": 1.0,
    "U8": 1.0,
    "F8_E4M3": 1.0,
    "F8_E5M2": 1.0,
    "F8_E8M0": 1.0,
    "F4": 0.5,
    "BOOL": 1.0,
}
"""Element types of the safetensors format."""

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Stored types that are converted to the engine's ``dtype`` when they are loaded."""

AT_LOAD = {
    "fp8": 1.0,
    "fp8_per_tensor": 1.0,
    "fp8_per_block": 1.0,
    "fp8_per_channel": 1.0,
    "mxfp8": 1.0 + 1 / 32,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4_per_token": 0.5 + 1 / 16,
}
"""Methods that quantise a 16-bit checkpoint while it loads: bytes per weight of a linear layer or an expert,
scales included (one byte per 32 for MX, per 16 for NVFP4)."""

AT_LOAD_EXPERTS_ONLY = {"experts_int8": 1.0, "int8_per_channel_weight_only": 1.0}

FROM_CHECKPOINT = {
    "awq": "awq",
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
    "compressed-tensors": "compressed-tensors",
    "fbgemm_fp8": "fbgemm_fp8",
    "fp_quant": "fp_quant",
    "modelopt": "modelopt",
    "modelopt_fp4": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "quark": "quark",
    "torchao": "torchao",
    "inc": "inc",
    "gpt_oss_mxfp4": "mxfp4",
    "deepseek_v4_fp8": "fp8",
}
"""Methods that need a quantised checkpoint, and the family that its ``quant_method`` must belong to."""

FAMILY_ONLY = {"moe_wna16": ("gptq", "awq"), "humming": ()}
"""Kernels for several families; ``()``: for any checkpoint."""

ANY_CHECKPOINT = frozenset({"online"})
PLUG_INS = frozenset({"gguf"})
"""Methods that vLLM loads from a plug-in; their checkpoints are not checked."""

METHODS = frozenset(
    {*AT_LOAD, *AT_LOAD_EXPERTS_ONLY, *FROM_CHECKPOINT, *FAMILY_ONLY, *ANY_CHECKPOINT, *PLUG_INS}
)

KV_BYTES = {
    "float16": 2.0,
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_ds_mla": 1.0,
    "int8_per_token_head": 1.0,
    "fp8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "nvfp4": 0.5 + 1 / 16,
    "nvfp4_4over6": 0.5 + 1 / 16,
    "turboquant_k8v4": 0.75,
    "turboquant_4bit_nc": 0.5,
    "turboquant_k3v4_nc": 0.4375,
    "turboquant_3bit_nc": 0.375,
}
"""Bytes per value of the KV cache. Scales per token and head (:data:`KV_SCALE_BYTES`) come on top;
TurboQuant's norms are not counted."""

KV_SCALE_BYTES = {"int8_per_token_head": 4.0, "fp8_per_token_head": 4.0, "int4_per_token_head": 4.0}
"""Per head, token and K or V."""


def family(method: str) -> str:
    """The checkpoint family of a ``quant_method`` or ``quantization``, such as one for all kinds of AWQ."""
    name = method.lower().replace("_", "-")
    plain = {key.replace("_", "-"): value for key, value in FROM_CHECKPOINT.items()}
    return plain.get(name, name)
