"""Tokenises texts: once per text, for both its vector and its length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenizerTraits:
    """What a tokenizer's file does not say: how shorter texts are padded to the longest of a group, at which
    end a long text is truncated, and the unknown token."""

    pad_id: int
    pad_type_id: int
    pad_left: bool
    cut_left: bool
    unknown_id: int | None

    @classmethod
    def of_library(cls, tokenizer: Any) -> TokenizerTraits:
        """The traits of a transformers tokenizer."""
        return cls(
            pad_id=tokenizer.pad_token_id or 0,
            pad_type_id=tokenizer.pad_token_type_id,
            pad_left=tokenizer.padding_side == "left",
            cut_left=tokenizer.truncation_side == "left",
            unknown_id=tokenizer.unk_token_id,
        )


@dataclass(frozen=True, slots=True)
class TextTokens:
    """One text's tokens after truncation, how many of them are unknown, and ``total``: the number before
    truncation."""

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    total: int
    unknown: int


class TextTokenizer:
    """A model's tokenizer that truncates at ``max_tokens`` and still reports the full length.

    ``tokenizer`` is modified: pass a copy.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, traits: TokenizerTraits) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens, direction="left" if traits.cut_left else "right")
        self._tokenizer = tokenizer
        self._traits = traits
        self._special = tokenizer.num_special_tokens_to_add(False)

    @classmethod
    def of_library(cls, tokenizer: Any, max_tokens: int) -> TextTokenizer:
        """From a transformers tokenizer, which is not modified."""
        from tokenizers import Tokenizer

        copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        return cls(copy, max_tokens, TokenizerTraits.of_library(tokenizer))

    def read(self, texts: Sequence[str]) -> list[TextTokens]:
        encodings = self._tokenizer.encode_batch_fast([_unicode(text) for text in texts])
        return [self._tokens(encoding) for encoding in encodings]

    def _tokens(self, encoding: Any) -> TextTokens:
        ids = tuple(encoding.ids)
        # The truncated rest follows in pieces, each with its own special tokens.
        total = len(ids) + sum(len(piece.ids) - self._special for piece in encoding.overflowing)
        return TextTokens(ids, tuple(encoding.type_ids), total, ids.count(self._traits.unknown_id))

    def padded(self, group: Sequence[TextTokens]) -> dict[str, Ids]:
        """``input_ids``, ``attention_mask`` and ``token_type_ids``, each int64 [texts, longest]."""
        shape = (len(group), max(len(text.ids) for text in group))
        ids = np.full(shape, self._traits.pad_id, np.int64)
        types = np.full(shape, self._traits.pad_type_id, np.int64)
        mask = np.zeros(shape, np.int64)
        for row, text in enumerate(group):
            length = len(text.ids)
            place = slice(shape[1] - length, None) if self._traits.pad_left else slice(length)
            ids[row, place] = text.ids
            types[row, place] = text.type_ids
            mask[row, place] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def by_length(lengths: Sequence[int], waste: float) -> list[list[int]]:
    """Group positions by similar length, shortest first.

    When a group is padded to its longest text, it gets at most ``waste`` padding tokens per token of its
    texts (0.1: a tenth).
    """
    groups: list[list[int]] = []
    own = 0
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[position]
        if groups and length * (len(groups[-1]) + 1) <= (own + length) * (1 + waste):
            groups[-1].append(position)
            own += length
        else:
            groups.append([position])
            own = length
    return groups


def _unicode(text: str) -> str:
    """``text`` with every lone surrogate replaced by U+FFFD, because no tokenizer accepts surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
