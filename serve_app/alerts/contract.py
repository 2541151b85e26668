"""The contract of an alert's rule: when it fires and clears, and the same in PromQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.monitoring import Figures

Read = Callable[[Figures, str], float | None]
"""The value for a model, or ``None``: there are too few samples to judge."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires where ``read`` gives more than ``limit``, and clears at ``clears_at`` or below.

    ``value`` is the same in PromQL, with a label ``model``, over the exported metrics; ``enough`` is true
    there where there are enough samples. ``scale``: the limit in PromQL's unit is the limit times this
    (Prometheus counts seconds where this application counts milliseconds). ``summary``: what it means, for a
    person."""

    name: str
    summary: str
    unit: str
    limit: float
    clears_at: float
    read: Read
    value: str
    enough: str
    scale: float = 1.0
    at_least: float | None = None
    """What a person is shown instead of ``limit``: the setting's number, where that many make it fire."""

    @property
    def said_limit(self) -> float:
        return self.limit if self.at_least is None else self.at_least
