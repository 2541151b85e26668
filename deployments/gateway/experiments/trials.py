"""The experiments of one gateway: what each arm's requests take, and when an experiment ends by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from secrets import token_hex

import msgspec

from deployments.gateway.experiments.judged_arms import ArmsScores
from deployments.gateway.monitoring.monitor import AskOthers, Measured
from serve_app.experiments.figures import ArmKey, ArmState, ArmWindow, with_others
from serve_app.experiments.plan import Asking, Assigned, Plan
from serve_app.experiments.scores import UnitScores
from serve_app.experiments.stopping import WORSE, reason_to_stop
from serve_app.monitoring import metrics as names
from serve_app.monitoring.intake import outcome_of
from serve_app.monitoring.metrics import Meter, NoMeter
from serve_app.request.record import RequestRecord
from serve_app.settings.experiments import CONTROL, ExperimentSettings

PERIOD_S = 5.0
"""Between two judgements."""

FAILED = frozenset({"failed", "client_error", "refused"})
"""Outcomes that count against an arm. A request that an arm's model refuses is one; what clients do wrong
happens in the control, too."""

logger = logging.getLogger("ray.serve")


class TrialsState(msgspec.Struct, frozen=True):
    """What one gateway knows, for the others. ``stopped``: by experiment, why."""

    gateway: str
    arms: list[ArmState]
    stopped: dict[str, str]
    scores: dict[str, list[UnitScores]] = {}
    """What a judge said, by ``NAME=ARM``."""


class Trials:
    """Made inside a running event loop; ``close`` ends it. Without experiments it does nothing.

    What has ended stays so in this gateway until it starts again, and in all that can ask it. It is long
    because what is decided, measured and ended concerns the same few arms.
    """

    def __init__(
        self,
        experiments: tuple[ExperimentSettings, ...],
        meter: Meter | None,
        ask_others: AskOthers | None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._settings = {each.name: each for each in experiments}
        self._plan = Plan.of(experiments)
        self._meter = NoMeter() if meter is None else meter
        self._ask_others = ask_others
        self._name = token_hex(8)
        self._windows = {
            (each.name, arm): ArmWindow(each.stop.window_s)
            for each in experiments
            for arm in (CONTROL, *(arm.name for arm in each.arms))
        }
        self._verdicts: dict[ArmKey, str] = {}
        self._scores = ArmsScores(list(self._windows))
        self.stopped: dict[str, str] = {}
        self._judging: asyncio.Task[None] | None = None
        if experiments:
            self._judging = asyncio.get_running_loop().create_task(self._judge_forever(period_s))

    async def close(self) -> None:
        if self._judging is not None:
            self._judging.cancel()
            await asyncio.gather(self._judging, return_exceptions=True)

    @property
    def are_none(self) -> bool:
        return not self._settings

    # ---- deciding ----

    def split(self, asking: Asking) -> Assigned | None:
        """The arm that answers a request; ``None``: it is in no experiment."""
        return self._plan.split(asking, time.time(), self.stopped) if self._plan.splits else None

    def shadow(self, asking: Asking) -> Assigned | None:
        """The arm that is asked besides."""
        return self._plan.shadow(asking, time.time(), self.stopped) if self._plan.shadows else None

    # ---- measuring ----

    def take(self, record: RequestRecord) -> None:
        """A sink of finished requests."""
        if record.experiment is None:
            return
        experiment, _, arm = record.experiment.partition("=")
        outcome = outcome_of(record)
        labels = {"experiment": experiment, "arm": arm}
        self._meter.add(names.EXPERIMENT_REQUESTS, 1, labels | {"outcome": outcome})
        if outcome == "answered":
            self.measured((experiment, arm), ttft_ms=record.ttft_ms, e2e_ms=record.total_ms)
        elif outcome in FAILED:
            self.measured((experiment, arm), failed=True)

    def measured(
        self, key: ArmKey, *, failed: bool = False, ttft_ms: float | None = None, e2e_ms: float = 0.0
    ) -> None:
        """One request of an arm that an engine answered, or that failed."""
        window = self._windows.get(key)
        if window is None:
            return
        window.open(time.monotonic()).add(failed=failed, ttft_ms=ttft_ms, e2e_ms=e2e_ms)
        if failed:
            return
        labels = {"experiment": key[0], "arm": key[1]}
        self._meter.observe(names.EXPERIMENT_E2E, e2e_ms / 1000, labels)
        if ttft_ms is not None:
            self._meter.observe(names.EXPERIMENT_TTFT, ttft_ms / 1000, labels)

    def scored(self, label: str, place: float, score: float) -> None:
        """A judge has graded an answer of an arm (``NAME=ARM``), 0 to 1."""
        self._scores.add(label, place, score)

    def shadowed(self, experiment: str, event: str) -> None:
        """What became of a shadow request."""
        self._meter.add(names.EXPERIMENT_SHADOWS, 1, {"experiment": experiment, "event": event})

    def judged(self, experiment: str, arm: str, verdict: str) -> bool:
        """A verdict on an arm's answers: ``worse``, ``not worse`` or ``undecided``; whether there is such an
        arm."""
        if (experiment, arm) not in self._windows:
            return False
        self._verdicts[experiment, arm] = verdict
        return True

    # ---- ending ----

    def state(self) -> bytes:
        """The state that another gateway asks for."""
        if self.are_none:
            return b""
        now = time.monotonic()
        arms = [window.read(now).state(key) for key, window in self._windows.items()]
        return msgspec.msgpack.encode(TrialsState(self._name, arms, self.stopped, self._scores.state()))

    async def _judge_forever(self, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await self.judge()
            except Exception:
                logger.exception("experiments could not be judged")

    async def judge(self) -> None:
        """Look at all experiments once, with what other gateways have measured."""
        others = [] if self._ask_others is None else states(await self._ask_others(), self._name)
        now = time.monotonic()
        own = {key: window.read(now) for key, window in self._windows.items()}
        together = with_others(own, [arm for state in others for arm in state.arms])
        await self._scores.judge([state.scores for state in others])
        for name, settings in self._settings.items():
            if name not in self.stopped:
                arms = {arm: figures for (owner, arm), figures in together.items() if owner == name}
                verdicts = self._said(name)
                found = next((state.stopped[name] for state in others if name in state.stopped), None)
                self._end(name, found or reason_to_stop(settings.stop, arms, verdicts))
            self._meter.set(names.EXPERIMENT_STOPPED, float(name in self.stopped), {"experiment": name})

    def _said(self, name: str) -> dict[str, str]:
        """Verdicts by arm: those that were given, and what the judge's scores say; ``worse`` if either is."""
        found = {arm: str(each.verdict) for arm, each in self._scores.verdicts(name).items()}
        for (owner, arm), said in self._verdicts.items():
            if owner == name and found.get(arm) != WORSE:
                found[arm] = said
        return found

    def _end(self, name: str, reason: str | None) -> None:
        if reason is not None:
            self.stopped[name] = reason
            logger.warning("experiment %s has ended, all get its control: %s", name, reason)

    def described(self) -> list[Mapping[str, object]]:
        """What this gateway knows, for people."""
        now = time.monotonic()
        return [
            {
                "name": name,
                "kind": settings.kind,
                "stopped": self.stopped.get(name),
                "arms": [
                    _described(arm, window, now) | self._scores.described((owner, arm))
                    for (owner, arm), window in self._windows.items()
                    if owner == name
                ],
            }
            for name, settings in self._settings.items()
        ]


def _described(arm: str, window: ArmWindow, now: float) -> dict[str, object]:
    figures = window.read(now)
    ttft, e2e = figures.ttft.percentiles(0.5, 0.95), figures.e2e.percentiles(0.5, 0.95)
    return {
        "name": arm,
        "requests": figures.requests,
        "failed": figures.failed,
        "ttft_ms": {"p50": round(ttft[0], 1), "p95": round(ttft[1], 1)},
        "e2e_ms": {"p50": round(e2e[0], 1), "p95": round(e2e[1], 1)},
    }


def states(answers: object, own: str) -> list[TrialsState]:
    """The states of the other gateways; one with other settings, or without experiments, has none."""
    found: list[TrialsState] = []
    for each in answers if isinstance(answers, list | tuple) else ():
        if not isinstance(each, Measured) or not each.trials:
            continue
        try:
            state = msgspec.msgpack.decode(each.trials, type=TrialsState)
        except msgspec.DecodeError:
            continue
        if state.gateway != own:
            found.append(state)
    return found
