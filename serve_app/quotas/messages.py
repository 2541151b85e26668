"""What gateways and the ledger's owner tell each other about quotas. Amounts are whole units of the bound."""

from __future__ import annotations

import msgspec

from serve_app.quotas.limits import Bound, Limit

SOON_S = 1.0
"""``Grant.retry_s`` where requests that run hold what another needs: most use less."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """All that a gateway has of one meter now: ``free``, and ``busy``: reserved by requests that run, or used
    and not reported yet."""

    scope: str
    bound: Bound
    tenant: str
    free: int
    busy: int


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """``age_s``: how long ago, for what counts by the minute."""

    scope: str
    bound: Bound
    tenant: str
    amount: int
    age_s: float


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What was used since the batch before. Reported until the owner has it on disk; it counts once."""

    seq: int
    spent: list[Spent]


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """``need``: the least that is of use; ``all``: what all requests that wait need; ``want``: what will be
    used soon. 0, 0: no request waits."""

    scope: str
    bound: Bound
    tenant: str
    need: int
    all: int
    want: int


class LeaseCall(msgspec.Struct, frozen=True, array_like=True):
    """``call`` counts up: one that was overtaken is void. ``epoch``: the owner whom the gateway knows; to
    another one (``whole``) it tells all it has, and in ``recent`` what it used in the last minute."""

    gateway: str
    call: int
    epoch: str
    whole: bool
    held: list[Held]
    batches: list[Batch]
    recent: list[Spent]
    asks: list[Ask]


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """The answer to an Ask. ``amount`` is the gateway's from now on. ``limit`` -1: there is none. ``left``:
    what no gateway has yet. ``resets_s``: until the bound's window ends, or its oldest use leaves it.
    ``retry_s``: of what was refused, when there may be enough. ``others``: other gateways have some that they
    may give back."""

    scope: str
    bound: Bound
    amount: int
    limit: int
    left: int
    resets_s: float
    retry_s: float
    short: bool
    others: bool


class LimitChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Limits since the version that a gateway has; ``removed`` are scopes. ``fresh``: these are all."""

    version: int
    limits: tuple[Limit, ...] = ()
    removed: tuple[str, ...] = ()
    fresh: bool = False


class LeaseReply(msgspec.Struct, frozen=True, array_like=True):
    """``applied`` and ``durable``: the newest batch that counts, and that would survive the owner. ``whole``:
    the owner does not know the gateway: it shall tell all. ``recalls``: meters of which others need what is
    free."""

    epoch: str
    whole: bool
    applied: int
    durable: int
    grants: list[Grant]
    recalls: list[tuple[str, Bound]]


class Used(msgspec.Struct, frozen=True):
    """The state of one bound: ``used`` in its window now, ``held`` by gateways for requests that run or
    come."""

    limit: int
    used: int
    held: int


class ShownLimit(msgspec.Struct, frozen=True):
    """What a scope was given, and what holds for it with the defaults, by bound."""

    limit: Limit
    uses: dict[str, Used]


class LimitPage(msgspec.Struct, frozen=True):
    limits: tuple[ShownLimit, ...]
    has_more: bool
