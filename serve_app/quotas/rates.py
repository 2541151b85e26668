"""The response headers that show a client its limits, as OpenAI's and Anthropic's APIs name them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from serve_app.quotas.limits import MINUTES, TOKENS, Bound
from serve_app.quotas.purse import Purse
from serve_app.quotas.windows import MINUTE_S

ANTHROPIC_PATHS = "/v1/messages"


class Left(NamedTuple):
    """What is left of a limit on requests or on tokens, and when it is whole again."""

    limit: int
    left: int
    resets_s: float


def left_of(purse: Purse, limit: int, now: float) -> Left | None:
    """What is left of ``limit``; ``None``: the owner has not said it, or of a window that is over. What is
    still free of a minute's limit is there however long ago it was granted."""
    by_minute, age_s = purse.bound in MINUTES, now - purse.told_at
    is_over = age_s > MINUTE_S and not purse.free if by_minute else age_s > purse.resets_s
    if purse.limit < 0 or is_over:
        return None
    left = max(0, min(limit, purse.left + purse.free))
    if by_minute:  # a minute after the newest use, which may be this request's
        return Left(limit, left, MINUTE_S if left < limit else 0.0)
    return Left(limit, left, purse.resets_s - age_s)


def narrowest(known: Iterable[tuple[Purse, int]], now: float) -> tuple[Left | None, Left | None]:
    """Of purses with their limits, the ones that have least left: of requests, and of tokens. Every answer
    passes here."""
    requests: list[Left] = []
    tokens: list[Left] = []
    for purse, limit in known:
        is_requests = purse.bound is Bound.REQUESTS
        left = left_of(purse, limit, now) if is_requests or purse.bound in TOKENS else None
        if left is not None:
            (requests if is_requests else tokens).append(left)
    return _least(requests), _least(tokens)


def _least(found: Iterable[Left]) -> Left | None:
    return min(found, key=lambda each: (each.left, each.limit), default=None)


def rate_headers(path: str, requests: Left | None, tokens: Left | None, unix: float) -> dict[str, str]:
    """``x-ratelimit-*``; on Anthropic's paths ``anthropic-ratelimit-*``."""
    headers: dict[str, str] = {}
    for name, left in (("requests", requests), ("tokens", tokens)):
        if left is None:
            continue
        if path.startswith(ANTHROPIC_PATHS):
            resets = datetime.fromtimestamp(unix + left.resets_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            begin = f"anthropic-ratelimit-{name}"
            values = (("limit", str(left.limit)), ("remaining", str(left.left)), ("reset", resets))
            headers |= {f"{begin}-{what}": value for what, value in values}
        else:
            headers[f"x-ratelimit-limit-{name}"] = str(left.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(left.left)
            headers[f"x-ratelimit-reset-{name}"] = duration(left.resets_s)
    return headers


def duration(seconds: float) -> str:
    """A time as OpenAI writes it: ``6m0s``, ``1s``, ``20ms``."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if whole >= 60 else "") + f"{rest}s"
