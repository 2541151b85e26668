"""Quality and speed before and after quantization, and the card with all figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from statistics import median
from typing import Any

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Pair:
    """One quantity before and after."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed in vLLM on this machine: milliseconds per output token of one stream, one value per round, and
    the share of greedy tokens before the first difference."""

    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]
    agreement: float

    @property
    def tpot(self) -> Pair:
        return Pair(median(self.before_ms), median(self.after_ms))


@dataclass(frozen=True, slots=True)
class Card:
    """The method and its results. ``speed`` is ``None`` if it was not measured; ``no_speed`` then says
    why."""

    source: str
    scheme: str
    method: str
    calibration: str
    samples: int
    sample_tokens: int
    held: str
    held_tokens: int
    size_bytes: Pair
    perplexity: Pair
    same_next_token: float
    """Share of positions of the held-out text at which both models choose the same greedy token."""
    speed: Speed | None
    no_speed: str
    machine: str
    versions: Mapping[str, str]


def perplexity(losses: Sequence[float], tokens: Sequence[int]) -> float:
    """Perplexity from ``losses``, the summed negative log-likelihoods (nats) of pieces of text, and
    ``tokens``, the number of predicted tokens in each.

    Raises:
        ValueError: nothing was predicted.
    """
    count = sum(tokens)
    if not count:
        raise ValueError("perplexity needs at least one predicted token")
    return math.exp(math.fsum(losses) / count)


def same_share(reference: Sequence[int], other: Sequence[int]) -> float:
    """Share of positions with equal values.

    Raises:
        ValueError: they differ in length, or are empty.
    """
    if len(reference) != len(other) or not reference:
        raise ValueError(f"cannot compare {len(reference)} values with {len(other)}")
    return sum(one == two for one, two in zip(reference, other, strict=True)) / len(reference)


def agreement(reference: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> float:
    """Share of the reference's tokens before the first difference of each answer; the text after a difference
    is not comparable.

    Raises:
        ValueError: not one answer to each, or no tokens.
    """
    tokens = sum(map(len, reference))
    if len(reference) != len(other) or not tokens:
        raise ValueError(f"cannot compare {len(reference)} answers ({tokens} tokens) with {len(other)}")
    return sum(common(one, two) for one, two in zip(reference, other, strict=True)) / tokens


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


# ---- the card --------------------------------------------------------------------------------------------


def as_json(card: Card) -> dict[str, Any]:
    """The card as JSON values, with ratios."""
    values = asdict(card)
    for name in ("size_bytes", "perplexity"):
        values[name]["ratio"] = getattr(card, name).ratio
    if card.speed is not None:
        values["speed"]["tpot_ms"] = {**asdict(card.speed.tpot), "ratio": card.speed.tpot.ratio}
    return values


def as_markdown(card: Card) -> str:
    """The card as Markdown."""
    lines = [f"# {card.source}, {card.scheme}", "", *_about(card), "", *_table(card), ""]
    return "\n".join(lines)


def _about(card: Card) -> Iterator[str]:
    yield f"- method: {card.method}"
    yield f"- calibration: {card.calibration}"
    yield f"- held text: {card.held}, {card.held_tokens:,} tokens"
    yield f"- machine: {card.machine}"
    yield "- made with " + ", ".join(f"{name} {version}" for name, version in card.versions.items())


def _table(card: Card) -> Iterator[str]:
    yield "| | before | after | ratio |"
    yield "|---|---|---|---|"
    size = card.size_bytes
    yield f"| weights, MiB | {size.before / MIB:,.1f} | {size.after / MIB:,.1f} | {size.ratio:.3f} |"
    loss = card.perplexity
    yield f"| perplexity of the held text | {loss.before:.3f} | {loss.after:.3f} | {loss.ratio:.4f} |"
    yield f"| share of its positions with the same greedy token | 1 | {card.same_next_token:.4f} | |"
    if card.speed is None:
        yield f"| TPOT in vLLM | – | – | not measured: {card.no_speed} |"
        return
    tpot = card.speed.tpot
    yield f"| TPOT in vLLM, 1 stream, ms | {tpot.before:.2f} | {tpot.after:.2f} | {tpot.ratio:.3f} |"
    yield f"| greedy tokens in vLLM before the first difference | 1 | {card.speed.agreement:.4f} | |"
