"""Takes finished requests into the latency windows and the metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from secrets import token_hex

import msgspec

from serve_app.monitoring import Figures, Slice, Windows
from serve_app.monitoring import metrics as names
from serve_app.monitoring.gap_counts import GapCounts
from serve_app.monitoring.intake import Sample, sample_of
from serve_app.monitoring.loops import LoopWatch
from serve_app.monitoring.metrics import Meter, Metric
from serve_app.monitoring.windows import OTHER
from serve_app.request.record import RequestRecord
from serve_app.settings.alerts import AlertSettings

Clock = Callable[[], float]


class Measured(msgspec.Struct, frozen=True):
    """One gateway's windows, as other gateways get them. ``figures``: see ``Figures.encoded``; ``trials``: of
    its experiments, see ``Trials.state``."""

    gateway: str
    figures: bytes
    trials: bytes = b""


AskOthers = Callable[[], Awaitable[Sequence[Measured]]]
"""Asks all gateways, this one or not; those that do not answer in time are left out."""


class MergedFigures(msgspec.Struct, frozen=True):
    """The figures of ``gateways`` gateways. ``leads``: of these this one speaks for all. It is the oldest: a
    new one does not know what has been said."""

    figures: Figures
    gateways: int
    leads: bool


class Monitor:
    """One gateway's measurements. ``models``: the names that requests may be counted under."""

    def __init__(
        self,
        models: Collection[str],
        settings: AlertSettings,
        meter: Meter,
        ask_others: AskOthers | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._models = frozenset(models)
        self._runaway_tokens = settings.runaway_tokens
        self._meter = meter
        self.gaps = GapCounts()
        self._ask_others = ask_others
        self._clock = clock
        self._windows = Windows(clock())
        self._loops = LoopWatch(settings.loop_requests, settings.loop_within_s)
        self._name = f"{time.time_ns():020d}-{token_hex(4)}"
        self._leads = True

    def take(self, record: RequestRecord) -> None:
        """A sink of finished requests."""
        sample = sample_of(record, self._models)
        if sample is None:
            return
        now = self._clock()
        opened, model = self._windows.open(now, sample.model)
        outcome, meter = sample.outcome, self._meter
        labels = {"model": model, "outcome": outcome}
        for measure, milliseconds in sample.durations:
            opened.observe((model, outcome, measure), milliseconds)
            meter.observe(names.DURATIONS[measure], milliseconds / 1000, labels, sample.operation)
        if sample.gaps is not None:
            self.gaps.add(sample.gaps, opened, (model, outcome, "itl"))
        if sample.real_time_factor is not None:
            meter.observe(names.REAL_TIME_FACTOR, sample.real_time_factor, labels, sample.operation)
        opened.count((model, "requests"), 1)
        meter.add(names.REQUESTS, 1, labels)
        if outcome == "refused":
            opened.count((model, "refused"), 1)
        for name, metric, happened in (
            ("errors", names.ERRORS, outcome == "failed"),
            ("stalled_streams", names.STALLED, sample.stalled),
            ("look_ups", names.LOOK_UPS, sample.looked_up),
            ("runaway_generations", names.RUNAWAY, self._ran_away(sample)),
            ("looping_sessions", names.LOOPS, self._began_to_loop(record, now)),
        ):
            if happened:
                opened.count((model, name), 1)
                meter.add(metric, 1, {"model": model})
        if sample.tier is not None:
            opened.count((model, "hits"), 1)
            meter.add(names.HITS, 1, {"model": model, "tier": sample.tier})
        self._count_tokens(sample, opened, model)

    def sampled(self, asked: str, *, refuses: bool, other_language: bool, chars: int) -> None:
        """An answer of a model was looked at for drift."""
        self._count_of(
            asked,
            ("sampled", names.SAMPLED, 1),
            ("sampled_chars", names.SAMPLED_CHARS, chars),
            ("refusals", names.REFUSALS, int(refuses)),
            ("other_language", names.OTHER_LANGUAGE, int(other_language)),
        )

    def judged(self, asked: str, score: float) -> None:
        """A judge has graded an answer of a model, 0 to 1."""
        points = round(score * 1000)
        self._count_of(asked, ("judged", names.JUDGED, 1), ("judged_points", names.JUDGED_POINTS, points))

    def _count_of(self, asked: str, *counts: tuple[str, Metric, int]) -> None:
        opened, model = self._windows.open(self._clock(), asked if asked in self._models else OTHER)
        for name, metric, number in counts:
            if number:
                opened.count((model, name), number)
                self._meter.add(metric, number, {"model": model})

    def _count_tokens(self, sample: Sample, opened: Slice, model: str) -> None:
        if not sample.generated:  # what the cache answers, or another request's stream, costs no tokens
            if sample.tier is not None and sample.tokens_out:
                opened.count((model, "tokens_saved"), sample.tokens_out)
                self._meter.add(names.TOKENS_SAVED, sample.tokens_out, {"model": model})
            return
        tokens = sample.tokens_in + sample.tokens_out
        if tokens:
            opened.count((model, "tokens"), tokens)
        for kind, number in (
            ("input", sample.tokens_in),
            ("output", sample.tokens_out),
            ("cached", sample.tokens_cached),
        ):
            if number:
                self._meter.add(names.TOKENS, number, {"model": model, "kind": kind})

    def _ran_away(self, sample: Sample) -> bool:
        return sample.generated and sample.tokens_answer >= self._runaway_tokens

    def _began_to_loop(self, record: RequestRecord, now: float) -> bool:
        session, ask = record.session, record.ask
        return session is not None and ask is not None and self._loops.saw(session, ask, now)

    def measured(self) -> Measured:
        """For another gateway."""
        return Measured(self._name, Figures(self._windows.read(self._clock())).encoded())

    async def together(self) -> MergedFigures:
        """The figures of all gateways that answer."""
        own = self._windows.read(self._clock())
        answers = [] if self._ask_others is None else await self._ask_others()
        others: Mapping[str, bytes] = {
            each.gateway: each.figures for each in answers if each.gateway != self._name
        }
        # Of copies only; adding up what others measured takes milliseconds.
        figures = await asyncio.to_thread(Figures.of_states, own, list(others.values()))
        if answers or self._ask_others is None:  # no answer at all, not even its own, says nothing of others
            self._leads = all(self._name < other for other in others)
        return MergedFigures(figures, 1 + len(others), self._leads)
