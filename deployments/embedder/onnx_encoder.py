"""The model as an ONNX graph under ONNX Runtime, on a CPU; torch is not loaded once the graph exists."""

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
    """What an encoder must know beside the graph and the tokenizer; ``encoder.json`` in a graph's folder."""

    dimension: int
    max_tokens: int
    inputs: tuple[str, ...]
    tokenizer: TokenizerTraits


class OnnxEncoder:
    """A graph folder that :mod:`deployments.embedder.onnx_export` made: texts' tokens in, unit vectors out.

    ``int8`` has its weights in eight bits and rounds activations on the way: half of the time of float32,
    other vectors (cosine 0.99 to those of float32), and so a name of its own. It rounds with one scale for
    all texts of a pass, so each text has a pass of its own: a text's vector would else depend on its company
    (cosine down to 0.96 of the vector that it has alone).
    """

    def __init__(self, folder: Path, spec: EncoderSpec) -> None:
        """Raises what reading the folder's files raises."""
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
    # Workers that wait sleep: spinning would take the core of the engine or the gateway.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
