"""A LoRA adapter of the tiny Llama as PEFT saves one, and the model that it makes when it is merged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from support.tiny_llama import Weights

RANK = 8
ALPHA = 16
MODULES = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.down_proj")
SPREAD = 0.05
"""As large as the model's own values: a quarter of each weight changes, so that the answers do."""


def write_adapter(folder: Path, model: Path, *, seed: int) -> Path:
    """An adapter of the weights in ``model``, from a seed."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(seed)
    tensors: Weights = {}
    for name, weight in load_file(model / "model.safetensors").items():
        if not name.removesuffix(".weight").endswith(MODULES):
            continue
        rows, columns = weight.shape
        module = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{module}.lora_A.weight"] = SPREAD * chance.standard_normal(
            (RANK, columns), dtype=np.float32
        )
        tensors[f"{module}.lora_B.weight"] = SPREAD * chance.standard_normal((rows, RANK), dtype=np.float32)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": [module.rpartition(".")[2] for module in MODULES],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_merged(folder: Path, model: Path, adapter: Path) -> Path:
    """``model`` with the adapter added to its weights: W + (alpha / r) B A."""
    shutil.copytree(model, folder)
    weights = load_file(model / "model.safetensors")
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name in weights:
        module = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{module}.lora_A.weight" in tensors:
            down, up = tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"]
            weights[name] = weights[name] + ALPHA / RANK * (up @ down)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
