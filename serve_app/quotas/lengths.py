"""What a request is likely to use, where it does not say: learned from finished ones."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.smoothing import mean

FIRST_GUESS = 1024
"""Tokens of an answer, until enough were seen."""

FLOOR = 256
"""No less is reserved for a stream, however short earlier answers were: it lasts for seconds, in which more
is reserved."""

ENOUGH = 20
QUANTILE = 0.95
STEPS = 4
"""Sizes are distinguished by a quarter of an octave."""

FADES_AT = 1000
"""Answers after which each counts half."""

FIRST_PACE = 100.0
"""Tokens per second of one answer, until one was seen: fast enough that a first answer seldom runs ahead of
what is reserved."""

MOST_PACE = 10_000.0
"""No engine decodes one answer faster: a server that says so counts wrongly."""

TELLING = 32
"""Shorter answers say little of a model's pace: most of their time is the prompt's."""

TELLING_PIECES = 4
MOST_PER_PIECE = 64.0

FADES = 0.98
"""What is left of the fastest answer's pace with each later answer."""

MOST_KNOWN = 4096
MOST_RATIO = 8.0

SHORT_PROMPT = 200
"""Estimated tokens. Of a shorter prompt most may be what the chat template adds."""

MOST_ADDED = 64.0
"""Tokens that a template is taken to add at most."""


@dataclass(slots=True)
class Sizes:
    """How long answers were, by quarter octaves of tokens."""

    seen: dict[int, float] = field(default_factory=dict)
    total: float = 0.0

    def add(self, tokens: int) -> None:
        size = _size(tokens)
        self.seen[size] = self.seen.get(size, 0.0) + 1
        self.total += 1
        if self.total >= FADES_AT:
            self.seen = {each: count / 2 for each, count in self.seen.items()}
            self.total /= 2

    def quantile(self) -> int:
        """The upper end of the size below which 95 of 100 answers are."""
        left = QUANTILE * self.total
        for size in sorted(self.seen):
            left -= self.seen[size]
            if left <= 0:
                return round(2 ** ((size + 1) / STEPS))
        return FIRST_GUESS


def _size(tokens: int) -> int:
    size, bound = 0, 2 ** (1 / STEPS)
    while bound < tokens:
        size += 1
        bound = 2 ** ((size + 1) / STEPS)
    return size


def least_reserved(streams: bool) -> int:
    """Tokens for one answer without a limit, whatever was learned."""
    return FLOOR if streams else FIRST_GUESS


@dataclass(slots=True)
class Recent:
    """The mean of recent samples."""

    mean: float = 0.0
    samples: int = 0

    def add(self, sample: float) -> None:
        self.mean = mean(self.mean, sample, self.samples)
        self.samples += 1


class Lengths:
    """How long answers are, by key, tenant and model; how many tokens a prompt has for each estimated one,
    and beside these, by tenant and model; and how fast each model is."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[tuple[str, str], Sizes] = OrderedDict()
        self._ratios: OrderedDict[tuple[str, str], Recent] = OrderedDict()
        self._added: OrderedDict[tuple[str, str], Recent] = OrderedDict()
        self._paces: dict[str, float] = {}
        self._pieces: OrderedDict[tuple[str, str], Recent] = OrderedDict()

    def saw_answer(self, senders: Sequence[str], model: str, tokens: int) -> None:
        """One answer of so many tokens. ``senders``: the scopes of who was answered, the tenant's last.
        No two tenants share one."""
        for who in senders:
            sizes = self._sizes.setdefault((who, model), Sizes())
            self._sizes.move_to_end((who, model))
            sizes.add(tokens)
        while len(self._sizes) > MOST_KNOWN:
            self._sizes.popitem(last=False)

    def saw_prompt(self, tenant: str, model: str, estimated: int, tokens: int) -> None:
        """A long prompt tells how dense the tenant's texts are, a short one what the template adds: a ratio
        of short ones would make long ones many times what they are."""
        if estimated >= SHORT_PROMPT:
            _learn(self._ratios, (tenant, model), min(MOST_RATIO, tokens / estimated))
        elif estimated > 0:
            _learn(self._added, (tenant, model), min(MOST_ADDED, max(0.0, tokens - estimated)))

    def saw_pace(self, model: str, tokens: int, seconds: float) -> None:
        """One answer took so long."""
        if tokens >= TELLING:
            self._paces[model] = max(min(tokens / seconds, MOST_PACE), FADES * self._paces.get(model, 0.0))

    def pace(self, model: str) -> float | None:
        """Tokens per second of one answer: of the fastest recent one, since slow ones may have waited, or
        have been read slowly. ``None``: none is known."""
        return self._paces.get(model)

    def saw_pieces(self, tenant: str, model: str, pieces: int, tokens: int) -> None:
        """One stream came in so many events."""
        if pieces >= TELLING_PIECES:
            sample = min(MOST_PER_PIECE, max(1.0, tokens / pieces))
            _learn(self._pieces, (tenant, model), sample)

    def per_piece(self, tenant: str, model: str) -> float:
        """Tokens in an event of a stream: more than one where an engine writes several at once, or drafts
        some. A tenant's own streams tell: how a client reads decides how many the engine joins."""
        seen = self._pieces.get((tenant, model))
        return 1.0 if seen is None else seen.mean

    def answer(self, senders: Sequence[str], model: str) -> int:
        """The tokens that 95 of 100 answers do not exceed: to the first of ``senders`` that had enough. What
        others were answered does not count: who asks could tell, or be refused, by it."""
        for who in senders:
            sizes = self._sizes.get((who, model))
            if sizes is not None and sizes.total >= ENOUGH:
                return sizes.quantile()
        return FIRST_GUESS

    def reserved(self, senders: Sequence[str], model: str, streams: bool) -> int:
        """The tokens to reserve for one answer without a limit. How long one becomes that is not streamed is
        seen only at its end, so short answers before it do not make that less than ``FIRST_GUESS``."""
        return max(least_reserved(streams), self.answer(senders, model))

    def prompt(self, tenant: str, model: str, estimated: float) -> int:
        """The tokens to reserve for a prompt: never less than estimated. What a tenant's prompts were before
        says little of its next one, which could otherwise have next to nothing reserved."""
        if estimated <= 0:
            return 0
        ratio, added = self._ratios.get((tenant, model)), self._added.get((tenant, model))
        dense = estimated if ratio is None else estimated * max(1.0, ratio.mean)
        return math.ceil(dense + (0.0 if added is None else added.mean))


def _learn(known: OrderedDict[tuple[str, str], Recent], of: tuple[str, str], sample: float) -> None:
    known.setdefault(of, Recent()).add(sample)
    known.move_to_end(of)
    while len(known) > MOST_KNOWN:
        known.popitem(last=False)
