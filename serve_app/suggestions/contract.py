"""A suggestion, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``name``: the rule; ``about``: a tenant and a model, or what else it is about."""

    name: str
    about: str
    advice: str
    evidence: str
    effect: str


@dataclass(frozen=True, slots=True)
class Observed:
    """``captures``: elements of `/admin/captures` with texts; ``feedback``: of `/admin/feedback`; ``cache``:
    its counters, as `/admin/cache` shows them. What is not there is empty."""

    captures: Sequence[Mapping[str, Any]] = ()
    feedback: Sequence[Mapping[str, Any]] = ()
    cache: Mapping[str, Any] = field(default_factory=dict)

    def groups(self) -> dict[str, list[Mapping[str, Any]]]:
        """Captures of each tenant and model."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for each in self.captures:
            found.setdefault(f"{each['tenant']} / {each['model']}", []).append(each)
        return found


Rule = Callable[[Observed], Iterable[Suggestion]]

ENOUGH = 20
"""Requests of one group: fewer say nothing."""


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of at least one value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def known(capture: Mapping[str, Any], name: str) -> Any:
    return (capture.get("request") or {}).get(name)
