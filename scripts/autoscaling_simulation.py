"""A fleet of engine replicas under a trace, by a virtual clock: no waiting, no network, no model.

A replica prefills prompts one after the other; the streams that it decodes share its steps, each slower the
more there are, and half as fast while a prompt is prefilled. It has a bounded number of places; who finds
none waits in one line at the gateway, first come first served. Requests go to the ready replica with the
fewest unprefilled tokens. A replica serves ``start_s`` after it was ordered and costs from then until it has
ended: one that is stopped ends what it has.
"""

from __future__ import annotations

import csv
import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from serve_app.autoscaling import Autoscaler, Decision, FleetLoad, ReplicaLoad, ScalingRules

TICK_S = 1.0
"""Between two looks of a policy. Serve's controller looks every 0.1 s at means over 30 s."""

REPORTED_AFTER = 2
"""Ticks: a gateway tells its replicas once a second, they report to Serve once a second."""

SMOOTHING = 0.1
"""Of the replicas' measurements, as in ``serve_app.fleet.pace``."""


@dataclass(frozen=True, slots=True)
class Request:
    """One row of a trace."""

    at_s: float
    input_tokens: int
    output_tokens: int


def read_trace(path: Path) -> list[Request]:
    """Rows ``t_s,input_tokens,output_tokens``, as in the Azure LLM inference traces of 2023.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such table, or its times do not ascend.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        try:
            trace = [_request(row) for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no table of t_s,input_tokens,output_tokens: {error!r}") from error
    if not trace or any(after.at_s < before.at_s for before, after in pairwise(trace)):
        raise ValueError(f"{path}: expected rows in ascending order of t_s")
    return trace


def _request(row: Mapping[str, str]) -> Request:
    return Request(float(row["t_s"]), int(row["input_tokens"]), int(row["output_tokens"]))


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """``decode_tokens_per_s`` is one stream's alone; each other stream in the batch adds ``slowdown`` of a
    step's time."""

    slots: int = 16
    prefill_tokens_per_s: float = 8000.0
    decode_tokens_per_s: float = 30.0
    slowdown: float = 0.03
    start_s: float = 60.0

    def tokens_per_s(self, batch: int, *, prefills: bool) -> float:
        """Of each stream."""
        alone = self.decode_tokens_per_s * (0.5 if prefills else 1.0)
        return alone / (1.0 + self.slowdown * (batch - 1))


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True, eq=False)
class Replica:
    """``progress`` is how many tokens a stream has got that decodes since the beginning; ``decoding`` holds
    (progress at its end, index of the request)."""

    model: ReplicaModel
    ordered_s: float
    state: State = State.STARTING
    version: int = 0
    updated_s: float = 0.0
    progress: float = 0.0
    prefilling: int | None = None
    prefilled_s: float = 0.0
    prompts: deque[tuple[int, int]] = field(default_factory=deque)
    prompt_tokens: int = 0
    decoding: list[tuple[float, int]] = field(default_factory=list)
    service_s: float | None = None
    itl_s: float | None = None

    @property
    def occupied(self) -> int:
        return len(self.decoding) + len(self.prompts) + (self.prefilling is not None)

    @property
    def has_room(self) -> bool:
        return self.state is State.READY and self.occupied < self.model.slots

    def unprefilled(self, now: float) -> float:
        """Prompt tokens that it holds and has not computed yet."""
        current_s = max(0.0, self.prefilled_s - now) if self.prefilling is not None else 0.0
        return self.prompt_tokens + current_s * self.model.prefill_tokens_per_s

    def take(self, index: int, tokens: int, now: float) -> None:
        self.advance(now)
        self.prompts.append((index, tokens))
        self.prompt_tokens += tokens
        self._begin_prefill(now)

    def advance(self, now: float) -> None:
        if self.decoding:
            self.progress += (now - self.updated_s) * self._rate()
        self.updated_s = now

    def _rate(self) -> float:
        return self.model.tokens_per_s(len(self.decoding), prefills=self.prefilling is not None)

    def _begin_prefill(self, now: float) -> None:
        if self.prefilling is None and self.prompts:
            self.prefilling, tokens = self.prompts.popleft()
            self.prompt_tokens -= tokens
            self.prefilled_s = now + tokens / self.model.prefill_tokens_per_s

    def next_event_s(self) -> float | None:
        """When something ends if nothing comes."""
        times = []
        if self.prefilling is not None:
            times.append(self.prefilled_s)
        if self.decoding:
            left = self.decoding[0][0] - self.progress
            times.append(self.updated_s + max(0.0, left) / self._rate())
        return min(times, default=None)

    def first_token(self, now: float) -> int | None:
        """The request whose prompt is done by ``now``, if there is one; the next one begins."""
        if self.prefilling is None or self.prefilled_s > now + 1e-9:
            return None
        index, self.prefilling = self.prefilling, None
        self._begin_prefill(now)
        return index

    def decode(self, index: int, tokens: int) -> None:
        heapq.heappush(self.decoding, (self.progress + tokens, index))

    def ended(self) -> int | None:
        """A request whose last token has come, if there is one."""
        if self.decoding and self.decoding[0][0] <= self.progress + 1e-6:
            return heapq.heappop(self.decoding)[1]
        return None

    def measure(self, service_s: float, itl_s: float | None) -> None:
        self.service_s = _mean(self.service_s, service_s)
        if itl_s is not None:
            self.itl_s = _mean(self.itl_s, itl_s)

    def load(self, now: float) -> ReplicaLoad:
        """What it would report."""
        prefilling = self.prefilling is not None
        return ReplicaLoad(
            running=len(self.decoding) + prefilling,
            waiting=len(self.prompts),
            waiting_tokens=self.unprefilled(now),
            capacity=self.model.slots,
            prefill_tokens_per_s=self.model.prefill_tokens_per_s,
            service_s=self.service_s,
            itl_s=self.itl_s if self.decoding else None,
        )


def _mean(known: float | None, sample: float) -> float:
    return sample if known is None else known + SMOOTHING * (sample - known)


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees at a tick; Serve's own goes by ``mean_ongoing``, over its ``look_back_period_s``."""

    load: FleetLoad
    mean_ongoing: float


class Scaler(Protocol):
    """A policy under test."""

    def replicas(self, view: View, now: float) -> int:
        """How many replicas shall serve."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many, always."""

    number: int

    def replicas(self, view: View, now: float) -> int:
        return self.number


class ByObjective:
    """The policy that is served (``serve_app.autoscaling``), told of its load as late as in a cluster: what
    gateways and engines report every second reaches Serve up to ``reported_after`` ticks later."""

    def __init__(self, rules: ScalingRules, reported_after: int = REPORTED_AFTER) -> None:
        self._autoscaler = Autoscaler(rules)
        self._on_the_way: deque[FleetLoad] = deque([FleetLoad()] * reported_after)
        self.decisions: list[Decision] = []

    def replicas(self, view: View, now: float) -> int:
        self._on_the_way.append(view.load)
        reported = self._on_the_way.popleft()
        self.decisions.append(self._autoscaler.decide(_as_reported(view.load, reported), now))
        return self.decisions[-1].serving


def _as_reported(fleet: FleetLoad, reported: FleetLoad) -> FleetLoad:
    """The fleet as it is, which Serve knows at once, with the load that was reported."""
    new = fleet.ready[len(reported.ready) :]
    ready = reported.ready[: len(fleet.ready)] + tuple(ReplicaLoad(capacity=each.capacity) for each in new)
    return replace(reported, ready=ready, starting=fleet.starting)


class ServeDefault:
    """Ray Serve's own policy: its code decides, here under a virtual clock.

    ``ray.serve`` applies scaling factors, delays and bounds around the policy with the wall clock
    (``_apply_autoscaling_config``); these are its own functions for that, which take the time. It sees better
    than in a cluster: every request (also those in line) at every tick, where Serve's replicas and handles
    record every 6 s and report every 10 s.
    """

    def __init__(self, config: Any) -> None:
        from ray.serve import autoscaling_policy

        self._policy = autoscaling_policy
        self._config = config
        self._state: dict[str, Any] = {}

    def replicas(self, view: View, now: float) -> int:
        load, config, policy = view.load, self._config, self._policy
        context = _serve_context(view, config, now)
        desired, _ = policy.replica_queue_length_autoscaling_policy(context)
        ready = len(load.ready)
        scaled = policy._apply_scaling_factors(desired, ready, config)
        if ready > 0 or scaled == 0:
            scaled, self._state = policy._apply_delay_logic(scaled, load.serving, config, self._state, now)
        return int(max(config.min_replicas, min(config.max_replicas, scaled)))


def _serve_context(view: View, config: Any, now: float) -> Any:
    from ray.serve.config import AutoscalingContext

    return AutoscalingContext(
        deployment_id=None,  # type: ignore[arg-type]  # the policy does not read it
        deployment_name="engine",
        app_name=None,
        current_num_replicas=len(view.load.ready),
        target_num_replicas=view.load.serving,
        running_replicas=[],
        total_num_requests=view.mean_ongoing,
        total_queued_requests=view.load.queued,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=config.min_replicas,
        capacity_adjusted_max_replicas=config.max_replicas,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now,
        config=config,
    )


@dataclass(slots=True)
class Outcome:
    """What became of a trace. ``ttft_s`` by request; the lists over time have one value a tick."""

    ttft_s: list[float]
    itl_s: list[float | None]
    replica_hours: float = 0.0
    starts: int = 0
    stops: int = 0
    at_s: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    serving: list[int] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    ongoing: list[float] = field(default_factory=list)

    def late_share(self, objective_s: float) -> float:
        """Share of the requests whose first token took longer."""
        return sum(ttft > objective_s for ttft in self.ttft_s) / len(self.ttft_s)


def simulate(
    trace: Sequence[Request],
    scaler: Scaler,
    model: ReplicaModel,
    *,
    objective_s: float = 1.0,
    initial: int = 1,
) -> Outcome:
    """Replay ``trace`` until every answer has ended; replica-hours count until the last request came."""
    return _Fleet(trace, scaler, model, objective_s, initial).run()


LOOK_BACK_S = 30.0
"""Serve's ``look_back_period_s``."""


class _Fleet:
    def __init__(
        self,
        trace: Sequence[Request],
        scaler: Scaler,
        model: ReplicaModel,
        objective_s: float,
        initial: int,
    ) -> None:
        self._trace, self._scaler, self._model = trace, scaler, model
        self._objective_s = objective_s
        self._replicas = [Replica(model, 0.0, State.READY) for _ in range(initial)]
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbered = 0
        self._line: deque[int] = deque()
        self._left = len(trace)
        self._placed_s = [0.0] * len(trace)
        self._first_s = [0.0] * len(trace)
        self._outcome = Outcome([0.0] * len(trace), [None] * len(trace))
        self._recent: deque[float] = deque(maxlen=max(1, round(LOOK_BACK_S / TICK_S)))
        self._arrived, self._arrived_tokens, self._began, self._began_late = 0, 0, 0, 0

    def run(self) -> Outcome:
        self._at(self._trace[0].at_s, lambda now: self._arrive(0, now))
        self._at(0.0, self._tick)
        while self._left:
            now, _, act = heapq.heappop(self._events)
            act(now)
        end_s = self._trace[-1].at_s
        for replica in self._replicas:
            self._charge(replica, end_s)
        return self._outcome

    def _at(self, time_s: float, act: Callable[[float], None]) -> None:
        self._numbered += 1
        heapq.heappush(self._events, (time_s, self._numbered, act))

    def _charge(self, replica: Replica, until_s: float) -> None:
        until_s = min(until_s, self._trace[-1].at_s)
        self._outcome.replica_hours += max(0.0, until_s - replica.ordered_s) / 3600

    def _arrive(self, index: int, now: float) -> None:
        self._arrived += 1
        self._arrived_tokens += self._trace[index].input_tokens
        self._line.append(index)
        self._place(now)
        if index + 1 < len(self._trace):
            self._at(self._trace[index + 1].at_s, lambda at: self._arrive(index + 1, at))

    def _place(self, now: float) -> None:
        while self._line:
            open_ = [replica for replica in self._replicas if replica.has_room]
            if not open_:
                return
            best = min(open_, key=lambda replica: (replica.unprefilled(now), replica.occupied))
            index = self._line.popleft()
            self._placed_s[index] = now
            best.take(index, self._trace[index].input_tokens, now)
            self._plan(best)

    def _plan(self, replica: Replica) -> None:
        """Its next event, in place of the one that was planned before."""
        replica.version += 1
        version, time_s = replica.version, replica.next_event_s()

        def happen(now: float) -> None:
            if replica.version == version:
                self._work(replica, now)

        if time_s is not None:
            self._at(time_s, happen)

    def _work(self, replica: Replica, now: float) -> None:
        replica.advance(now)
        begun = replica.first_token(now)
        if begun is not None:
            self._begin(replica, begun, now)
        while (index := replica.ended()) is not None:
            self._end(replica, index, now)
        self._plan(replica)
        if replica.state is State.DRAINING and not replica.occupied:
            self._remove(replica, now)
        self._place(now)

    def _begin(self, replica: Replica, index: int, now: float) -> None:
        request = self._trace[index]
        self._first_s[index] = now
        self._outcome.ttft_s[index] = now - request.at_s
        self._began += 1
        self._began_late += now - request.at_s > self._objective_s
        if request.output_tokens > 1:
            replica.decode(index, request.output_tokens - 1)
        else:
            self._end(replica, index, now)

    def _end(self, replica: Replica, index: int, now: float) -> None:
        tokens = self._trace[index].output_tokens - 1
        itl_s = (now - self._first_s[index]) / tokens if tokens > 0 else None
        self._outcome.itl_s[index] = itl_s
        replica.measure(now - self._placed_s[index], itl_s)
        self._left -= 1

    def _tick(self, now: float) -> None:
        ready = [replica for replica in self._replicas if replica.state is State.READY]
        starting = sum(replica.state is State.STARTING for replica in self._replicas)
        load = FleetLoad(
            ready=tuple(replica.load(now) for replica in ready),
            starting=starting,
            queued=len(self._line),
            queued_tokens=sum(self._trace[index].input_tokens for index in self._line),
            arrived=self._arrived,
            arrived_tokens=self._arrived_tokens,
            first_tokens=self._began,
            late_first_tokens=self._began_late,
        )
        self._arrived = self._arrived_tokens = self._began = self._began_late = 0
        self._recent.append(load.ongoing)
        self._record(load, now)
        view = View(load, sum(self._recent) / len(self._recent))
        self._scale(self._scaler.replicas(view, now) - load.serving, now)
        self._at(now + TICK_S, self._tick)

    def _record(self, load: FleetLoad, now: float) -> None:
        outcome = self._outcome
        outcome.at_s.append(now)
        outcome.ready.append(len(load.ready))
        outcome.serving.append(load.serving)
        outcome.line.append(int(load.queued))
        outcome.ongoing.append(load.ongoing)

    def _scale(self, change: int, now: float) -> None:
        for _ in range(change):
            replica = Replica(self._model, now)
            self._replicas.append(replica)
            self._outcome.starts += 1
            self._at(now + self._model.start_s, lambda at, replica=replica: self._ready(replica, at))  # type: ignore[misc]
        for _ in range(-change):
            self._stop_one(now)

    def _ready(self, replica: Replica, now: float) -> None:
        if replica in self._replicas:
            replica.state, replica.updated_s = State.READY, now
            self._place(now)

    def _stop_one(self, now: float) -> None:
        """The newest that starts, else the one with the least to end (Serve goes by the same order of
        states)."""
        self._outcome.stops += 1
        starting = [replica for replica in self._replicas if replica.state is State.STARTING]
        if starting:
            self._remove(starting[-1], now)
            return
        ready = [replica for replica in self._replicas if replica.state is State.READY]
        replica = min(ready, key=lambda each: each.occupied)
        replica.state = State.DRAINING
        if not replica.occupied:
            self._remove(replica, now)

    def _remove(self, replica: Replica, now: float) -> None:
        self._replicas.remove(replica)
        self._charge(replica, now)


@dataclass(frozen=True, slots=True)
class Point:
    """One run: what it cost and what it gave. ``setting`` says which one it was."""

    setting: str
    replica_hours: float
    late_share: float


def best_at(replica_hours: float, points: Sequence[Point]) -> float:
    """The late share that a policy reaches at a cost, from runs with other settings: linear between those
    that no other run beats in both. Outside of them the nearest counts."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.replica_hours, each.late_share)):
        if not front or point.late_share < front[-1].late_share:
            front.append(point)
    if replica_hours <= front[0].replica_hours:
        return front[0].late_share
    for low, high in pairwise(front):
        if replica_hours <= high.replica_hours:
            part = (replica_hours - low.replica_hours) / (high.replica_hours - low.replica_hours)
            return low.late_share + part * (high.late_share - low.late_share)
    return front[-1].late_share
