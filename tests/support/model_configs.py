"""``config.json`` of well-known models, as far as a plan reads them, and how many values their weights
have."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}

SMOLLM2_135M: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
LLAMA_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "head_dim": 64,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_scaling": LLAMA3_ROPE,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_scaling": LLAMA3_ROPE,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
LLAMA_70B: dict[str, Any] = LLAMA_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}
EAGLE3_8B: dict[str, Any] = LLAMA_8B | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
    "rope_scaling": None,
    "max_position_embeddings": 2048,
}
QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "torch_dtype": "bfloat16",
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_32B: dict[str, Any] = QWEN3_06B | {
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "tie_word_embeddings": False,
}
QWEN3_30B_A3B: dict[str, Any] = QWEN3_06B | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
QWEN3_235B_FP8: dict[str, Any] = QWEN3_30B_A3B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_hidden_layers": 94,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
MIXTRAL_8X7B: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GEMMA3_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
    "tie_word_embeddings": True,
    "vision_config": {"hidden_size": 1152},
}

PARAMETERS = (
    ("SmolLM2-135M", SMOLLM2_135M, 134_515_008),
    ("Llama-3.2-1B", LLAMA_1B, 1_235_814_400),
    ("Llama-3.1-8B", LLAMA_8B, 8_030_261_248),
    ("Llama-3.3-70B", LLAMA_70B, 70_553_706_496),
    ("Qwen3-32B", QWEN3_32B, 32_762_123_264),
    ("Qwen3-30B-A3B", QWEN3_30B_A3B, 30_532_122_624),
    ("Qwen3-235B-A22B", QWEN3_235B_FP8, 235_093_634_560),
    ("Mixtral-8x7B", MIXTRAL_8X7B, 46_702_792_704),
    ("DeepSeek-V3", DEEPSEEK_V3, 671_026_419_200),
)
"""Name, config, and the number of values in the published weights (DeepSeek's without its MTP layer)."""


SOURCES: dict[str, dict[str, Any]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": SMOLLM2_135M,
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA_1B,
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA_8B,
    "meta-llama/Llama-3.3-70B-Instruct": LLAMA_70B,
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": EAGLE3_8B,
    "Qwen/Qwen3-32B": QWEN3_32B,
    "Qwen/Qwen3-30B-A3B": QWEN3_30B_A3B,
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": QWEN3_235B_FP8,
    "deepseek-ai/DeepSeek-V3": DEEPSEEK_V3,
}
"""Configs by the names that config files use."""


def write_model(
    folder: Path, config: dict[str, Any], tensors: dict[str, tuple[str, list[int]]] | None = None
) -> Path:
    """A model folder; with ``tensors`` (stored type and shape) also a safetensors file of zeros."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A file of the safetensors format; its data is a hole, so size costs nothing."""
    sizes = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "F8_E4M3": 1}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (kind, shape) in tensors.items():
        start = end
        count = 1
        for side in shape:
            count *= side
        end = start + count * sizes[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
