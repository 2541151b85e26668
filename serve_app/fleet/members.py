"""The values that describe members; ``EngineReport`` is what crosses the process boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from serve_app.fleet.pace import Pace
from serve_app.openai.continuation import TokenLimits
from serve_app.settings.paths import ENGINE_PATHS
from serve_app.speculation import SpeculationReport
from serve_app.wire.private_address import PrivateAddress

UNKNOWN_LIMITS = TokenLimits()

ALL = 1 << 30
"""More slots than any member has."""


class EngineState(Enum):
    WARMING = "warming"
    READY = "ready"
    WITHDRAWN = "withdrawn"
    """It takes no new requests: it is about to sleep."""
    ASLEEP = "asleep"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PrefillCounts:
    """Requests of an engine with remote prefill: prefilled by prefill engines, or by itself as the
    fallback."""

    elsewhere: int
    here: int


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine's answer to ``describe()``, or what a health check found out about an external upstream.

    ``headers`` authenticate the gateway to it (a vendor's key); for a replica both ends prove instead that
    they know ``secret``, see :class:`~serve_app.wire.private_address.PrivateAddress`. Neither appears in logs
    or responses (nor in ``repr``). ``socket`` is a Unix socket for gateways on the replica's own node.
    ``kv_cache_usage`` is a share from 0 to 1, ``kv_cache_tokens`` the cache's size (0: not known),
    ``capacity`` how many requests it runs at once. ``served_as`` is its own name for the model.
    ``api_prefix`` replaces ``/v1`` in a path.
    ``gives_token_ids``: it supports vLLM's extensions, so that an interrupted stream can be continued on it.
    ``resumes_chats``: it can be told the beginning of a chat's answer.
    ``takes_tools``: it reads tool calls out of the model's text (assumed of an upstream).
    ``takes_cache_salt``: it accepts vLLM's ``cache_salt``, which separates tenants in its prefix cache.
    ``shows_prefixes``: it may cache the prefixes of requests that have no salt, without its operator having
    said that tenants may share them.
    ``priority``: members with a lower number are used first; ``weight``: share among equals. ``is_static``:
    it stays in the table whether or not it reports (an external upstream).
    ``speculation``: what speculative decoding gains; ``None`` without it. ``prefills``: where prompts are
    prefilled; ``None`` where one engine does both. ``start_s``: seconds of each phase of its start.
    ``paths``: the paths that clients may use. ``tasks``: vLLM's names of what the model does; empty where it
    is not known. ``idle_connection_s``: how long an unused connection to it is
    kept; ``None``: the gateway's own time.
    """

    replica_id: str
    model: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    state: EngineState
    secret: str = field(default="", repr=False)
    socket: str = ""
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    kv_cache_tokens: int = 0
    capacity: int = 1
    token_limits: TokenLimits = UNKNOWN_LIMITS
    served_as: str | None = None
    api_prefix: str = "/v1"
    gives_token_ids: bool = True
    resumes_chats: bool = False
    takes_tools: bool = True
    takes_cache_salt: bool = True
    shows_prefixes: bool = True
    priority: int = 0
    weight: float = 1.0
    is_static: bool = False
    speculation: SpeculationReport | None = None
    prefills: PrefillCounts | None = None
    start_s: Mapping[str, float] = field(default_factory=dict)
    paths: frozenset[str] = frozenset(ENGINE_PATHS)
    tasks: tuple[str, ...] = ()
    idle_connection_s: float | None = None

    @property
    def private(self) -> PrivateAddress | None:
        """The address of a replica's own listener; ``None`` for an external upstream."""
        return PrivateAddress(self.url, self.secret, self.socket) if self.secret else None


@dataclass(slots=True)
class Member:
    """One engine in the table: its newest report, and what this gateway knows beyond it.

    A *slot* is room for one sequence at an engine; a request takes one for each of its sequences. ``limit``
    is how many slots may be taken at once. ``in_flight`` counts the slots that this gateway's requests take
    there, ``granted`` how many these may be before the next report: other gateways take what is free, too.
    ``unanswered`` are those of them that wait for their first byte, ``pending_tokens`` their estimated
    uncached prompts. ``others`` are sequences in the newest report that are not from this gateway,
    ``others_waiting`` those of them that had not begun. ``turn`` is a virtual time that advances by
    1 / weight with every request; the member with the lowest one is next. ``last_byte_at``: when bytes of any
    answer last arrived (monotonic seconds).
    """

    report: EngineReport
    limit: int
    in_flight: int = 0
    granted: int = ALL
    others: int = 0
    others_waiting: int = 0
    unreachable_until: float = 0.0
    reported_at: float = 0.0
    last_byte_at: float = 0.0
    turn: float = 0.0
    unanswered: int = 0
    pending_tokens: float = 0.0
    pace: Pace = field(default_factory=Pace)

    @property
    def name(self) -> str:
        """The value of ``x-served-by``."""
        return self.report.replica_id

    def can_serve(self, now: float) -> bool:
        return self.report.state is EngineState.READY and now >= self.unreachable_until

    @property
    def load(self) -> int:
        """Sequences at the engine now, by a report that is up to one poll old."""
        return self.in_flight + self.others

    @property
    def has_room(self) -> bool:
        """Whether it can take another sequence."""
        return self.in_flight + self.others < self.limit and self.in_flight < self.granted

    @property
    def room(self) -> int:
        """Free slots."""
        return max(0, min(self.limit - self.others, self.granted) - self.in_flight)

    def expected_wait_s(self, new_tokens: float) -> float:
        """Seconds until the first token of a request that brings ``new_tokens`` of uncached prompt.

        First the prompts ahead are prefilled, one after the other: this gateway's, and those of others that
        wait there (the report gives their number, not their length, so a mean length is assumed). Running
        sequences take part in every prefill step: a full member is assumed to be half as fast, which also
        balances running answers where no prompt waits. A member at or above its capacity first has to finish
        ``load + 1 - capacity`` requests, at ``capacity`` per service time (the M/D/c approximation).
        """
        report, pace, load = self.report, self.pace, self.load
        capacity = report.capacity or 1
        tokens = self.pending_tokens + self.others_waiting * pace.prompt_tokens + new_tokens
        wait_s = tokens * pace.prefill_s_per_token * (1.0 + load / (capacity * report.weight))
        if load >= capacity:
            wait_s += (load + 1 - capacity) * pace.service_s / capacity
        return wait_s
