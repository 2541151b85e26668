"""What the lengths of answers say of ``max_tokens``, and of the size of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from serve_app.suggestions.contract import ENOUGH, Observed, Suggestion, known, quantile

FAR = 4
"""``max_tokens`` this many times what nearly all answers need."""

SHORT_TOKENS = 16
SMALLER = 0.9
"""The share of answers that are so short."""


def unused_max_tokens(observed: Observed) -> Iterator[Suggestion]:
    for about, captures in observed.groups().items():
        given = [(asked, used) for each in captures if (asked := _max_tokens(each)) and (used := _used(each))]
        if len(given) < ENOUGH:
            continue
        most, p99 = quantile([asked for asked, _ in given], 0.5), quantile([used for _, used in given], 0.99)
        cut = sum(1 for each in captures if known(each, "finish_reason") == "length")
        if most < FAR * p99 or cut:
            continue
        yield Suggestion(
            name="unused_max_tokens",
            about=about,
            advice=f"Ask for `max_tokens` {_rounded(2 * p99)} instead of {most:.0f}.",
            evidence=f"Of {len(given)} answers 99 % had at most {p99:.0f} tokens; none was cut.",
            effect="Limits reserve less for each request, waits are estimated better, and an answer that "
            "runs away ends sooner. The answers stay the same.",
        )


def larger_than_needed(observed: Observed) -> Iterator[Suggestion]:
    for about, captures in observed.groups().items():
        used = [tokens for each in captures if (tokens := _used(each))]
        if len(used) < ENOUGH:
            continue
        short = sum(1 for tokens in used if tokens <= SHORT_TOKENS) / len(used)
        disliked = _negative_share(observed, about)
        if short < SMALLER or (disliked is not None and disliked > 0.1):
            continue
        times = [float(each) for capture in captures if (each := known(capture, "total_ms"))]
        typical = f", and take {quantile(times, 0.5):.0f} ms each" if times else ""
        yield Suggestion(
            name="larger_than_needed",
            about=about,
            advice="Compare a smaller model on these requests: `promptly eval --replay`.",
            evidence=f"{short:.0%} of {len(used)} answers have at most {SHORT_TOKENS} tokens{typical}: they "
            "choose or extract, which small models do as well in many cases.",
            effect="If the verdict is `not worse`, time and cost fall about with the size of the model.",
        )


def _negative_share(observed: Observed, about: str) -> float | None:
    tenant, _, model = about.partition(" / ")
    scores = [
        each["score"]
        for each in observed.feedback
        if each["score"] is not None and (each["tenant"], each["request"]["model"]) == (tenant, model)
    ]
    return sum(score < 0.5 for score in scores) / len(scores) if scores else None


def _max_tokens(capture: Mapping[str, Any]) -> float | None:
    asked = capture.get("asked") or {}
    value = asked.get("max_completion_tokens") or asked.get("max_tokens")
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _used(capture: Mapping[str, Any]) -> int | None:
    value = known(capture, "output_tokens")
    return value if isinstance(value, int) and value > 0 else None


def _rounded(value: float) -> int:
    """Up to the next power of two: a number that people remember."""
    return 1 << max(4, (int(value) - 1).bit_length())
