"""Runs the model as an ONNX graph in ONNX Runtime on a CPU. Torch is only loaded to make the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from deployments.embedder.base import Encoded, EncoderSpec, Floats
from deployments.embedder.grouped import ALONE, CPU_WASTE, encode_groups
from deployments.embedder.tokens import Ids, TextTokenizer, TokenizerTraits
from serve_app.errors import SettingsError

GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
CARD_FILE = "encoder.json"


class GraphCard(msgspec.Struct, frozen=True):
    """What an encoder needs besides the graph and the tokenizer: ``encoder.json`` in the graph's folder."""

    dimension: int
    max_tokens: int
    inputs: tuple[str, ...]
    tokenizer: TokenizerTraits


class OnnxEncoder:
    """An encoder on a graph folder made by :mod:`deployments.embedder.onnx_export`.

    ``int8`` stores weights in eight bits and quantizes activations at run time. It takes half the time of
    float32, but its vectors differ (cosine 0.99 to those of float32), so it has a separate name. It quantizes
    with one scale for all texts of a pass, so each text gets its own pass: otherwise a text's vector would
    depend on the other texts (cosine down to 0.96 to the vector of the text alone).
    """

    def __init__(self, folder: Path, spec: EncoderSpec) -> None:
        """Open the graph in ``folder``. Raises what reading its files raises."""
        from tokenizers import Tokenizer

        card = msgspec.json.decode((folder / CARD_FILE).read_bytes(), type=GraphCard)
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self._tokenizer = TextTokenizer(tokenizer, card.max_tokens, card.tokenizer)
        self._card = card
        self._spec = spec
        self._waste = ALONE if spec.dtype == "int8" else CPU_WASTE
        self._session = _session(folder / GRAPH_FILE, spec.threads)

    @property
    def name(self) -> str:
        return f"{self._spec.source}:{self._spec.dtype}"

    @property
    def dimension(self) -> int:
        return self._card.dimension

    @property
    def max_tokens(self) -> int:
        return self._card.max_tokens

    def encode(self, texts: Sequence[str]) -> Encoded:
        return encode_groups(texts, self._tokenizer, self._forward, self.dimension, self._waste)

    def _forward(self, inputs: Mapping[str, Ids]) -> Floats:
        found: Floats = self._session.run(None, {name: inputs[name] for name in self._card.inputs})[0]
        return found


def _session(graph: Path, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingsError("embedder.backend = 'onnx' needs the package onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle workers sleep: spinning would take CPU time from the engine or the gateway.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
