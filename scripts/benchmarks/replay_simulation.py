"""A replay in virtual time: simulated engines behind the gateway's own router and fleet table.

An engine has slots, prefills one prompt at a time in order of arrival, keeps the blocks used last and gives
tokens at a fixed rhythm: the timing of ``sim_engine.py`` without its HTTP.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.mooncake import Arrival
from serve_app.fleet import Dispatch, EngineReport, EngineState, FleetTable
from serve_app.openai.requests import Endpoint, parse_generation
from serve_app.routing import POLICIES, Router

MODEL = "m"
Action = Callable[[], None]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``step_s`` is what any prefill costs beside its uncached tokens; ``itl_growth``: a token takes
    ``itl_s * (1 + itl_growth * running / slots)``, as of the answer's begin."""

    prefill_s_per_token: float
    cache_tokens: int
    slots: int = 64
    step_s: float = 0.0
    itl_s: float = 0.02
    itl_growth: float = 0.0


@dataclass(slots=True)
class Outcome:
    """``ttft_s`` by arrival; tokens over all engines; ``requests`` by engine."""

    ttft_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    busy_s: float = 0.0
    end_s: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)


class Clock:
    """Actions by their time; those of one time in the order in which they were given."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time_s: float, action: Action) -> None:
        heapq.heappush(self._due, (time_s, next(self._order), action))

    def run(self) -> None:
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action()


@dataclass(eq=False, slots=True)
class Job:
    arrival: Arrival
    first_byte: Action
    end: Action


class SimulatedEngine:
    def __init__(self, name: str, settings: EngineSettings, clock: Clock, outcome: Outcome) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._outcome = outcome
        self._running = 0
        self._waiting: deque[Job] = deque()
        self._prefills: deque[Job] = deque()
        self._prefilling = False
        self._cache: OrderedDict[int, int] = OrderedDict()
        self._cached = 0

    def report(self) -> EngineReport:
        """As vLLM counts: a request waits until its prefill begins."""
        begun = self._running - len(self._prefills)
        return EngineReport(
            self.name,
            MODEL,
            f"http://{self.name}",
            {},
            EngineState.READY,
            running=begun,
            waiting=len(self._waiting) + len(self._prefills),
            kv_cache_tokens=self._settings.cache_tokens,
            capacity=self._settings.slots,
        )

    def submit(self, job: Job) -> None:
        self._outcome.requests[self.name] = self._outcome.requests.get(self.name, 0) + 1
        self._waiting.append(job)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._running < self._settings.slots:
            self._running += 1
            self._prefills.append(self._waiting.popleft())
        if self._prefills and not self._prefilling:
            self._prefill(self._prefills.popleft())

    def _prefill(self, job: Job) -> None:
        cached = self._cached_tokens(job.arrival)
        prompt = job.arrival.prompt_tokens
        seconds = self._settings.step_s + (prompt - cached) * self._settings.prefill_s_per_token
        self._outcome.prompt_tokens += prompt
        self._outcome.cached_tokens += cached
        self._outcome.busy_s += seconds
        self._prefilling = True
        self._clock.at(self._clock.now + seconds, lambda: self._begin(job))

    def _begin(self, job: Job) -> None:
        self._prefilling = False
        self._keep(job.arrival)
        job.first_byte()
        busy = 1 + self._settings.itl_growth * self._running / self._settings.slots
        answer_s = (job.arrival.output_tokens - 1) * self._settings.itl_s * busy
        self._clock.at(self._clock.now + answer_s, lambda: self._end(job))
        self._admit()

    def _end(self, job: Job) -> None:
        self._running -= 1
        job.end()
        self._admit()

    def _cached_tokens(self, arrival: Arrival) -> int:
        """The last token is always computed."""
        cached = 0
        for block, tokens in arrival.blocks:
            if block not in self._cache:
                return cached
            cached += tokens
        return cached - 1

    def _keep(self, arrival: Arrival) -> None:
        for block, tokens in reversed(arrival.blocks):
            if block not in self._cache:
                self._cache[block] = tokens
                self._cached += tokens
            self._cache.move_to_end(block)
        while self._cached > self._settings.cache_tokens:
            self._cached -= self._cache.popitem(last=False)[1]


class Gateway:
    """Routes as a gateway does: describe, order, send."""

    def __init__(self, policy: str, engines: Sequence[SimulatedEngine], clock: Clock) -> None:
        self.table = FleetTable({MODEL: None})
        self._engines = {engine.name: engine for engine in engines}
        self._router = Router(POLICIES[policy])
        self._clock = clock

    def poll(self) -> None:
        reports = [engine.report() for engine in self._engines.values()]
        self.table.update(MODEL, reports, self._clock.now)

    def route(self, arrival: Arrival, on_first_byte: Callable[[float], None]) -> None:
        sent_at = self._clock.now
        parsed = parse_generation(Endpoint.CHAT, arrival.body(MODEL))
        request = self._router.describe(parsed, arrival.session)
        member = self._router.order(request, self.table.candidates(MODEL, sent_at))[0]
        dispatch = self.table.send(member, request.uncached_tokens(member), sent_at)
        self._router.sent(request, member)

        def first_byte() -> None:
            self.table.first_byte(dispatch, self._clock.now)
            on_first_byte(self._clock.now - sent_at)

        job = Job(arrival, first_byte, lambda: self._end(dispatch))
        self._engines[member.name].submit(job)

    def _end(self, dispatch: Dispatch) -> None:
        self.table.end(dispatch, self._clock.now, complete=True)


def simulate(
    arrivals: Sequence[Arrival],
    policy: str,
    settings: EngineSettings,
    *,
    engines: int = 4,
    gateways: int = 1,
    poll_s: float = 0.25,
) -> Outcome:
    """Play all arrivals through ``policy``; requests take the gateways in turn."""
    clock, outcome = Clock(), Outcome()
    fleet = [SimulatedEngine(f"engine-{number}", settings, clock, outcome) for number in range(engines)]
    fronts = [Gateway(policy, fleet, clock) for _ in range(gateways)]
    ttft_s: dict[int, float] = {}
    for number in range(int(arrivals[-1].at_s / poll_s) + 1):
        for front in fronts:
            clock.at(number * poll_s, front.poll)
    for number, arrival in enumerate(arrivals):
        front = fronts[number % gateways]

        def arrive(front: Gateway = front, arrival: Arrival = arrival, number: int = number) -> None:
            front.route(arrival, lambda seconds: ttft_s.__setitem__(number, seconds))

        clock.at(arrival.at_s, arrive)
    clock.run()
    outcome.ttft_s = [ttft_s[number] for number in range(len(arrivals))]
    outcome.end_s = clock.now
    return outcome
