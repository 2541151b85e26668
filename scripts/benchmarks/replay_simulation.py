"""A replay in virtual time: simulated engines behind the gateway's own router and fleet table.

An engine has slots, prefills one prompt at a time in order of arrival, caches the most recently used blocks
and yields tokens at a fixed pace. This is the timing of ``sim_engine`` without its HTTP, a hundred times as
fast.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.mooncake import Arrival
from serve_app.fleet import EngineReport, EngineState, FleetTable
from serve_app.openai.requests import Endpoint, parse_generation
from serve_app.routing import POLICIES, Router

MODEL = "m"
POLL_S = 0.25
"""The period at which a gateway reads the load of the engines; it is the default of the settings."""

Action = Callable[[], None]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``step_s`` is the time that every prefill takes in addition to its uncached tokens."""

    prefill_s_per_token: float
    cache_tokens: int
    slots: int = 64
    step_s: float = 0.0
    itl_s: float = 0.02


@dataclass(slots=True)
class Outcome:
    """``ttft_s`` is in order of arrival; tokens, prefill time and requests are sums over all engines."""

    ttft_s: list[float]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_s: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens


class Clock:
    """A virtual clock: it runs actions by time, and actions of one time in the order in which they were
    added."""

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


@dataclass(frozen=True, slots=True)
class Job:
    """One request at an engine, with callbacks for the start and the end of its answer."""

    arrival: Arrival
    first_byte: Action
    end: Action


class SimulatedEngine:
    """One engine, which adds its counts to ``outcome``."""

    def __init__(self, name: str, settings: EngineSettings, clock: Clock, outcome: Outcome) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._outcome = outcome
        self._cache = BlockCache(settings.cache_tokens)
        self._running = 0
        self._waiting: deque[Job] = deque()
        self._to_prefill: deque[Job] = deque()
        self._is_prefilling = False

    def report(self) -> EngineReport:
        """The engine's load; a request counts as waiting, as in vLLM, until its prefill begins."""
        return EngineReport(
            replica_id=self.name,
            model=MODEL,
            url=f"http://{self.name}",
            headers={},
            state=EngineState.READY,
            running=self._running - len(self._to_prefill),
            waiting=len(self._waiting) + len(self._to_prefill),
            kv_cache_tokens=self._settings.cache_tokens,
            capacity=self._settings.slots,
        )

    def submit(self, job: Job) -> None:
        self._outcome.requests[self.name] += 1
        self._waiting.append(job)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._running < self._settings.slots:
            self._running += 1
            self._to_prefill.append(self._waiting.popleft())
        if self._to_prefill and not self._is_prefilling:
            self._prefill(self._to_prefill.popleft())

    def _prefill(self, job: Job) -> None:
        prompt, cached = job.arrival.prompt_tokens, self._cache.cached_tokens(job.arrival)
        prefill_s = self._settings.step_s + (prompt - cached) * self._settings.prefill_s_per_token
        self._outcome.prompt_tokens += prompt
        self._outcome.cached_tokens += cached
        self._outcome.prefill_s += prefill_s
        self._is_prefilling = True
        self._clock.at(self._clock.now + prefill_s, lambda: self._begin(job))

    def _begin(self, job: Job) -> None:
        self._is_prefilling = False
        self._cache.keep(job.arrival)
        job.first_byte()
        rest_s = (job.arrival.output_tokens - 1) * self._settings.itl_s
        self._clock.at(self._clock.now + rest_s, lambda: self._end(job))
        self._admit()

    def _end(self, job: Job) -> None:
        self._running -= 1
        job.end()
        self._admit()


class BlockCache:
    """The most recently used blocks; the end of a prompt is evicted before its beginning."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens
        self._blocks: OrderedDict[int, int] = OrderedDict()

    def cached_tokens(self, arrival: Arrival) -> int:
        """Cached tokens at the prompt's beginning; its last token is always computed."""
        cached = 0
        for block, tokens in arrival.blocks:
            if block not in self._blocks:
                return cached
            cached += tokens
        return cached - 1

    def keep(self, arrival: Arrival) -> None:
        for block, tokens in reversed(arrival.blocks):
            if block not in self._blocks:
                self._blocks[block] = tokens
                self._room -= tokens
            self._blocks.move_to_end(block)
        while self._room < 0:
            self._room += self._blocks.popitem(last=False)[1]


class Gateway:
    """Routes as a gateway does: it describes the request, orders the members, and sends."""

    def __init__(self, policy: str, engines: Sequence[SimulatedEngine], clock: Clock) -> None:
        self._table = FleetTable({MODEL: None})
        self._engines = {engine.name: engine for engine in engines}
        self._router = Router(POLICIES[policy], keeps_sessions=False)  # only the policy is measured
        self._clock = clock

    def poll(self) -> None:
        self._table.update(MODEL, [engine.report() for engine in self._engines.values()], self._clock.now)

    def route(self, arrival: Arrival, on_first_byte: Action) -> None:
        parsed = parse_generation(Endpoint.CHAT, arrival.request(MODEL).body)
        request = self._router.describe(parsed, arrival.session)
        member = self._router.order(request, self._table.candidates(MODEL, self._clock.now))[0]
        dispatch = self._table.send(member, request.uncached_tokens(member), self._clock.now)
        self._router.sent(request, member)

        def first_byte() -> None:
            self._table.first_byte(dispatch, self._clock.now)
            on_first_byte()

        def end() -> None:
            self._table.end(dispatch, self._clock.now, complete=True)

        self._engines[member.name].submit(Job(arrival, first_byte, end))


def simulate(
    arrivals: Sequence[Arrival],
    policy: str,
    settings: EngineSettings,
    *,
    engines: int = 4,
    gateways: int = 1,
    poll_s: float = POLL_S,
) -> Outcome:
    """Play all arrivals through ``policy``; they take the gateways in turn."""
    clock, outcome = Clock(), Outcome([0.0] * len(arrivals))
    fleet = [SimulatedEngine(f"engine-{number}", settings, clock, outcome) for number in range(engines)]
    fronts = [Gateway(policy, fleet, clock) for _ in range(gateways)]
    for number in range(1 + int(arrivals[-1].at_s / poll_s)):
        for front in fronts:
            clock.at(number * poll_s, front.poll)
    for number in range(len(arrivals)):
        _schedule(number, arrivals[number], fronts[number % gateways], clock, outcome)
    clock.run()
    return outcome


def _schedule(number: int, arrival: Arrival, front: Gateway, clock: Clock, outcome: Outcome) -> None:
    def first_byte() -> None:
        outcome.ttft_s[number] = clock.now - arrival.at_s

    clock.at(arrival.at_s, lambda: front.route(arrival, first_byte))
