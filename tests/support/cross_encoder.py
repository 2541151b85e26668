"""A cross-encoder of a few thousand random weights that knows a dozen words."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "how", "far", "is", "it", "near", "?")


def make_cross_encoder(folder: Path, outputs: int = 1) -> str:
    """Written into ``folder``, which it returns: a source for the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=outputs,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)
