"""The cosine of each pair's embeddings, from the encoder that serves traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from cache_lab.pairs import LabelledPair
from deployments.embedder import open_configured
from serve_app.cache.normal import load_normaliser
from serve_app.settings import EmbedderSettings

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder whose verifier is shipped."""

SHIPPED_DTYPE: Literal["int8"] = "int8"
"""The precision of the encoder in the shipped configs."""

BATCH = 32

NOT_LOOKED_UP = -1.0


def embedder_settings(
    source: str = EMBEDDER, dtype: Literal["float32", "int8"] = SHIPPED_DTYPE
) -> EmbedderSettings:
    """An embedder on CPUs; without arguments that of the shipped configs."""
    return EmbedderSettings(id="embedder", source=source, dtype=dtype)


class Vectors:
    """Texts' vectors as a look-up gets them: of the normal form, each alone if the precision asks for it.

    Raises:
        SettingsError: the encoder cannot run here.
    """

    def __init__(self, settings: EmbedderSettings) -> None:
        self._encoder = open_configured(settings)
        self._normal = load_normaliser()
        self._whole: dict[str, Any] = {}

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def read(self, texts: Iterable[str]) -> None:
        """Encode texts in batches, and remember them."""
        # By length: what is encoded together is padded to the longest.
        wanted = sorted(set(texts) - set(self._whole), key=lambda text: (len(text), text))
        for begin in range(0, len(wanted), BATCH):
            batch = wanted[begin : begin + BATCH]
            found = self._encoder.encode([self._normal(text) for text in batch])
            for text, vector, tokens, unknown in zip(
                batch, found.vectors, found.tokens, found.unknown, strict=True
            ):
                whole = tokens <= self._encoder.max_tokens and not unknown
                self._whole[text] = vector if whole else None

    def to_look_up(self, text: str) -> Any:
        """The vector, or ``None`` where the text is longer than the embedder reads or holds tokens that it
        does not know: such a text is looked up by its exact words only."""
        self.read((text,))
        return self._whole[text]

    def of_answer(self, text: str) -> Any:
        """The vector of a text as it is, read completely or not."""
        return self._encoder.encode([text]).vectors[0]


def similarities(pairs: Sequence[LabelledPair], settings: EmbedderSettings) -> list[float]:
    """One cosine for each pair; -1 where a text has no vector to look it up by (``Vectors.to_look_up``).

    Raises:
        SettingsError: the encoder cannot run here.
    """
    vectors = Vectors(settings)
    vectors.read(text for pair in pairs for text in (pair.query, pair.candidate))
    return [_cosine(vectors.to_look_up(pair.query), vectors.to_look_up(pair.candidate)) for pair in pairs]


def _cosine(one: Any, two: Any) -> float:
    return NOT_LOOKED_UP if one is None or two is None else float(one @ two)
