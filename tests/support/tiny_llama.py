"""A Llama that is small enough to start in seconds: random weights from a seed, a real tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "dtype": "float32",
    "eos_token_id": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
CPU_ENGINE: dict[str, Any] = {
    "accelerator": "cpu",
    "num_cpus": 0,
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 1024,
    "max_num_seqs": 8,
    "cpu_kv_cache_gib": 1,
}
"""Engine settings that start it beside others on a small machine."""

ONE_CORE = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
"""Environment of an engine that shares its CPUs."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SPREAD = 0.05

Weights = dict[str, NDArray[np.float32]]


def write_tiny_llama(folder: Path, tokenizer: Path, *, seed: int = 0) -> Path:
    """The model in ``folder``, with the tokenizer of the folder ``tokenizer``, whose vocabulary must fit."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    save_file(_weights(np.random.default_rng(seed)), folder / "model.safetensors", {"format": "pt"})
    for name in TOKENIZER_FILES:
        shutil.copy2(tokenizer / name, folder / name)
    return folder


def _weights(chance: np.random.Generator) -> Weights:
    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return SPREAD * chance.standard_normal((rows, columns), dtype=np.float32)

    hidden, mlp = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    queries = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    ones = np.ones(hidden, dtype=np.float32)
    weights: Weights = {
        "model.embed_tokens.weight": matrix(CONFIG["vocab_size"], hidden),
        "model.norm.weight": ones,
    }
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        weights |= {
            f"{layer}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"{layer}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"{layer}.mlp.gate_proj.weight": matrix(mlp, hidden),
            f"{layer}.mlp.up_proj.weight": matrix(mlp, hidden),
            f"{layer}.mlp.down_proj.weight": matrix(hidden, mlp),
            f"{layer}.input_layernorm.weight": ones,
            f"{layer}.post_attention_layernorm.weight": ones,
        }
    return weights
