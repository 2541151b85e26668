"""A fleet of simulated replicas under a trace and a policy.

A replica has a bounded number of slots. Requests that find none free wait in one queue, first come first
served, and go to the ready replica with the fewest unprefilled tokens. A replica serves ``start_s`` after it
was ordered, and costs from the order until it has ended; one that is stopped finishes its requests first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscaling_simulation.policies import Scaler, View
from autoscaling_simulation.replica import Replica, ReplicaModel, State
from autoscaling_simulation.trace import Request
from serve_app.autoscaling import FleetLoad

TICK_S = 1.0
"""Interval of the policy. Serve's controller runs it every 0.1 s, on means over 30 s."""


@dataclass(slots=True)
class Outcome:
    """The result of a run. ``ttft_s`` and ``itl_s`` are by request; the other lists have one value per
    tick."""

    ttft_s: list[float]
    itl_s: list[float | None]
    replica_hours: float = 0.0
    starts: int = 0
    stops: int = 0
    at_s: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    serving: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    ongoing: list[float] = field(default_factory=list)

    def late_share(self, objective_s: float) -> float:
        """Share of requests whose TTFT is above the objective."""
        return sum(ttft > objective_s for ttft in self.ttft_s) / len(self.ttft_s)


def simulate(
    trace: Sequence[Request],
    scaler: Scaler,
    model: ReplicaModel,
    *,
    objective_s: float = 1.0,
    initial: int = 1,
) -> Outcome:
    """Replay ``trace`` until every answer has ended. Replica-hours count until the last request arrives."""
    return _Fleet(trace, scaler, model, objective_s, initial).run()


LOOK_BACK_S = 30.0
"""Serve's ``look_back_period_s``."""


class _Fleet:
    """One run. It is one class because every event changes the same replicas, queue and times."""

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
        self._queue: deque[int] = deque()
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
        self._queue.append(index)
        self._place(now)
        if index + 1 < len(self._trace):
            self._at(self._trace[index + 1].at_s, lambda at: self._arrive(index + 1, at))

    def _place(self, now: float) -> None:
        while self._queue:
            open_ = [replica for replica in self._replicas if replica.has_room]
            if not open_:
                return
            best = min(open_, key=lambda replica: (replica.prefills.unprefilled(now), replica.occupied))
            index = self._queue.popleft()
            self._placed_s[index] = now
            best.take(index, self._trace[index].input_tokens, now)
            self._plan(best)

    def _plan(self, replica: Replica) -> None:
        """Plan the replica's next event, which replaces the one planned before."""
        replica.version += 1
        version, time_s = replica.version, replica.next_event_s()

        def happen(now: float) -> None:
            if replica.version == version:
                self._work(replica, now)

        if time_s is not None:
            self._at(time_s, happen)

    def _work(self, replica: Replica, now: float) -> None:
        replica.advance(now)
        begun = replica.prefills.ended(now)
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
            queued=len(self._queue),
            queued_tokens=sum(self._trace[index].input_tokens for index in self._queue),
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
        outcome.queued.append(int(load.queued))
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
        """Stop the newest replica that is starting, else the one with the fewest requests. Serve takes the
        same order of states."""
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
