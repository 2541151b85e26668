"""Runs the cross-encoder's graph in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from serve_app.cache.cross_encoder.card import Card

GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
INPUTS = ("ids", "mask", "types")

MOST_CHARACTERS = 8_000
"""Limit for both texts together. Longer texts have more tokens than the model reads, so they are not
tokenized."""


class CrossEncoder:
    """Scores pairs of texts in milliseconds; may be called from several threads.

    Each pair is run alone: INT8 rounds activations with one scale for all pairs of a batch, so a pair's score
    would depend on the others. On one thread this costs no more than a batch, and nothing is padded.
    """

    def __init__(self, card: Card, folder: Path) -> None:
        """Open the graph in ``folder``. Raises what reading its files raises."""
        import onnxruntime
        from tokenizers import Tokenizer

        self.card = card
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # waking more threads takes longer
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / GRAPH_FILE), options, providers=["CPUExecutionProvider"]
        )

    def score(self, stored: str, new: str, cosine: float) -> float:
        """The probability that one answer serves both texts; 0 if they are longer than the model reads.
        ``cosine``: the cosine of their embeddings."""
        logit = self.logit(stored, new)
        return 0.0 if logit is None else self.card.calibration.probability(logit, cosine)

    def logit(self, stored: str, new: str) -> float | None:
        """The model's own score, not calibrated; ``None`` if the texts are longer than it reads."""
        if len(stored) + len(new) > MOST_CHARACTERS:
            return None
        # Lone surrogates are not valid Unicode; the tokenizer refuses them.
        one, two = (text.encode("utf-8", "replace").decode("utf-8") for text in (stored, new))
        read = self._tokenizer.encode(one, two)
        if len(read.ids) > self.card.max_tokens:
            return None
        values = (read.ids, read.attention_mask, read.type_ids)
        inputs = {name: np.array([row], np.int64) for name, row in zip(INPUTS, values, strict=True)}
        return float(self._session.run(None, inputs)[0][0])
