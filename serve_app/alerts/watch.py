"""Which alerts fire. A rule must be exceeded for a while before it fires, and be kept for a while, by a
margin, before it clears."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serve_app.alerts.contract import Rule
from serve_app.monitoring import Figures


@dataclass(frozen=True, slots=True)
class Standing:
    """One rule for one model now. ``value`` is ``None`` where there are too few samples to judge.
    ``since_s``: for how long it has been as it is."""

    rule: Rule
    model: str
    firing: bool
    value: float | None
    since_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """An alert began to fire, or cleared."""

    rule: Rule
    model: str
    firing: bool
    value: float | None

    def __str__(self) -> str:
        value = "too few requests" if self.value is None else f"{self.value:.3g}"
        what = "fires" if self.firing else "has cleared"
        limit = f"{self.rule.said_limit:g} {self.rule.unit}"
        return f"alert {self.rule.name} of {self.model} {what}: {value}, limit {limit}"


@dataclass(slots=True)
class _State:
    since: float
    firing: bool = False
    value: float | None = None
    turned_at: float | None = None
    """Since when the value has said the opposite of ``firing``."""


class AlertWatch:
    """``judge`` it every few seconds; seconds of a clock that does not go back."""

    def __init__(self, rules: Sequence[Rule], *, hold_s: float, clear_s: float) -> None:
        self._rules = rules
        self._hold_s = hold_s
        self._clear_s = clear_s
        self._states: dict[tuple[str, str], _State] = {}

    def judge(self, figures: Figures, now: float) -> list[Change]:
        """What has changed. A model without requests for half an hour keeps no state, once nothing fires."""
        models = set(figures.models) | {model for (_, model), state in self._states.items() if state.firing}
        self._states = {key: state for key, state in self._states.items() if key[1] in models}
        return [
            change
            for model in sorted(models)
            for rule in self._rules
            if (change := self._judge(rule, model, figures, now)) is not None
        ]

    def _judge(self, rule: Rule, model: str, figures: Figures, now: float) -> Change | None:
        state = self._states.setdefault((rule.name, model), _State(now))
        state.value = value = rule.read(figures, model)
        if state.firing:
            turns, wait_s = value is None or value <= rule.clears_at, self._clear_s
        else:
            turns, wait_s = value is not None and value > rule.limit, self._hold_s
        if not turns:
            state.turned_at = None
            return None
        if state.turned_at is None:
            state.turned_at = now
        if now - state.turned_at < wait_s:
            return None
        state.firing, state.since, state.turned_at = not state.firing, now, None
        return Change(rule, model, state.firing, value)

    def standing(self, now: float) -> Iterator[Standing]:
        """Every rule for every model that has one."""
        rules = {rule.name: rule for rule in self._rules}
        for (name, model), state in self._states.items():
            yield Standing(rules[name], model, state.firing, state.value, now - state.since)
