"""Writes a trained cross-encoder as it serves: an INT8 graph beside its tokenizer."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import torch

from cache_lab.cross_training import PairModel
from deployments.embedder.onnx_export import OPSET, quantize
from serve_app.cache.cross_encoder.model import GRAPH_FILE, INPUTS, TOKENIZER_FILE


def export(model: PairModel, weights: Path, folder: Path) -> None:
    """``weights``: the folder that training began from, for its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights / TOKENIZER_FILE, folder / TOKENIZER_FILE)
    # Two pairs, one of them padded: tracing must not record a shortcut for a full mask.
    mask = torch.tensor([[1] * 9, [1] * 7 + [0] * 2])
    types = torch.tensor([[0] * 5 + [1] * 4, [0] * 4 + [1] * 3 + [0] * 2])
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of every Python value that is treated as a constant
        torch.onnx.export(
            model.eval(),
            (mask * 5, mask, types),
            str(folder / GRAPH_FILE),
            input_names=list(INPUTS),
            output_names=["logits"],
            dynamic_axes={name: {0: "pairs", 1: "tokens"} for name in INPUTS} | {"logits": {0: "pairs"}},
            opset_version=OPSET,
            dynamo=False,
        )
    quantize(folder / GRAPH_FILE)
