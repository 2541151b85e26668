"""All experiments: which arm a request gets. The same in every gateway, at every start."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from serve_app.experiments.changes import Change
from serve_app.settings.experiments import CONTROL, ArmSettings, ExperimentSettings

HEADER = "x-experiment"


@dataclass(frozen=True, slots=True)
class Asking:
    """What a request is known by. ``model`` and ``prompt`` are what it names. ``unit``: what keeps its arm;
    ``request``: that of this request alone. ``wish``: its header ``x-experiment``."""

    tenant: str
    model: str
    prompt: str | None
    unit: str
    request: str
    wish: str | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """``change`` is ``None`` for the control. ``place``: that of the unit, shown instead of a session's
    name, which is private; 0 where nothing was drawn."""

    experiment: str
    arm: str
    change: Change | None
    place: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.experiment}={self.arm}"

    @property
    def mark(self) -> str:
        """The cache keeps the answers of different arms apart; the control asks what the client asked."""
        return f"experiment {self.label} {self.change}"


@dataclass(frozen=True, slots=True)
class Arm:
    """``start``: where its part of all places begins, percent. It is the same at every step of a ramp, so a
    session that has got an arm keeps it while the arm grows."""

    name: str
    start: float
    steps: Sequence[tuple[float, float]]
    change: Change

    def percent(self, unix: float) -> float:
        return next((percent for at, percent in reversed(self.steps) if at <= unix), 0.0)


@dataclass(frozen=True, slots=True)
class Experiment:
    settings: ExperimentSettings
    arms: tuple[Arm, ...]

    @classmethod
    def of(cls, settings: ExperimentSettings) -> Self:
        arms: list[Arm] = []
        start = 0.0
        for each in settings.arms:
            arms.append(Arm(each.name, start, _steps(each), Change.of(each)))
            start += each.most_percent
        return cls(settings, tuple(arms))

    def fits(self, asking: Asking) -> bool:
        settings = self.settings
        return (
            (not settings.models or asking.model in settings.models)
            and (not settings.tenants or asking.tenant in settings.tenants)
            and (settings.prompt is None or asking.prompt == settings.prompt)
        )

    def assigned(self, asking: Asking, unix: float) -> Assigned:
        name = self.settings.name
        unit = asking.unit if self.settings.unit == "session" else asking.request
        at = place(name, asking.tenant, unit)
        chosen = self._wished(asking.wish) if self.settings.allow_choice else None
        if chosen is None:
            chosen = next(
                (arm for arm in self.arms if arm.start <= at < arm.start + arm.percent(unix)), CONTROL
            )
        if isinstance(chosen, str):
            return Assigned(name, CONTROL, None, at)
        return Assigned(name, chosen.name, chosen.change, at)

    def _wished(self, wish: str | None) -> Arm | str | None:
        name, _, arm = (wish or "").strip().partition("=")
        if name != self.settings.name:
            return None
        return CONTROL if arm == CONTROL else next((each for each in self.arms if each.name == arm), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """A request is in the first experiment of a kind that it fits, in the order of the settings."""

    splits: tuple[Experiment, ...]
    shadows: tuple[Experiment, ...]

    @classmethod
    def of(cls, experiments: Sequence[ExperimentSettings]) -> Self:
        made = [Experiment.of(each) for each in experiments]
        return cls(
            tuple(each for each in made if each.settings.kind == "split"),
            tuple(each for each in made if each.settings.kind == "shadow"),
        )

    def split(self, asking: Asking, unix: float, stopped: Collection[str]) -> Assigned | None:
        """The arm that answers; ``None``: the request is in no experiment. One that has ``stopped`` gives
        everybody the control."""
        for each in self.splits:
            if each.fits(asking):
                name = each.settings.name
                return Assigned(name, CONTROL, None) if name in stopped else each.assigned(asking, unix)
        return None

    def shadow(self, asking: Asking, unix: float, stopped: Collection[str]) -> Assigned | None:
        """The arm that is asked besides, if one is."""
        for each in self.shadows:
            if each.fits(asking):
                if each.settings.name in stopped:
                    return None
                assigned = each.assigned(asking, unix)
                return None if assigned.change is None else assigned
        return None


def place(experiment: str, tenant: str, unit: str) -> float:
    """Where a unit of a tenant lies in an experiment, from 0 to below 100. Experiments are independent of one
    another."""
    parts = b"".join(
        len(text.encode()).to_bytes(4, "big") + text.encode() for text in (experiment, tenant, unit)
    )
    number = int.from_bytes(hashlib.blake2b(parts, digest_size=8, person=b"promptly-ab").digest(), "big")
    return (number >> 11) * 100.0 / (1 << 53)


def _steps(arm: ArmSettings) -> list[tuple[float, float]]:
    """Unix seconds and percent, in order."""
    return [(0.0, arm.percent), *((step.unix, step.percent) for step in arm.ramp)]
