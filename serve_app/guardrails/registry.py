"""Which guards hold for a request, in the order of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.guardrails.contract import Stage
from serve_app.settings.guardrails import GuardrailSettings
from serve_app.settings.paths import own_name


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose request it is. ``models``: every name that the model has for it: as asked for, as answered under,
    and of the model itself, where that is an adapter's."""

    models: frozenset[str]
    tenant: str
    path: str


class Guardrails:
    """The guards of the settings."""

    def __init__(self, guards: Sequence[GuardrailSettings]) -> None:
        self._guards = tuple(guards)

    def held(self, subject: Subject, stage: Stage) -> tuple[GuardrailSettings, ...]:
        """Those that look at it in this stage."""
        return tuple(each for each in self._guards if stage.value in each.stages and holds(each, subject))


def holds(guard: GuardrailSettings, subject: Subject) -> bool:
    """An empty list in its settings stands for all."""
    return (
        (not guard.models or not subject.models.isdisjoint(guard.models))
        and (not guard.tenants or subject.tenant in guard.tenants)
        and (not guard.endpoints or own_name(subject.path) in guard.endpoints)
    )


def that_refuses_unseen(guards: Sequence[GuardrailSettings]) -> GuardrailSettings | None:
    """The first of them that lets nothing pass that it cannot see."""
    return next((each for each in guards if each.refuses_unseen), None)
