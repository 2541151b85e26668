"""What is limited, for whom: bounds of a scope.

A *scope* is written ``KIND:NAME``: ``key:ID``, ``user:TENANT/NAME``, ``tenant:NAME``, ``model:NAME`` or
``use:TENANT/MODEL``, a tenant's use of a model. A request is in several, and each must allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

UTC = "UTC"
MOST = 10**15
"""Largest limit. It is far more than any use, so it also says *no limit* where a default would hold."""

MOST_MONEY = 10**9
MOST_NAME_CHARS = 300
NANO = 1_000_000_000
"""Money is counted in whole billionths of the currency in which the prices are: a token may cost less than a
millionth."""

KINDS = ("key", "user", "tenant", "model", "use")


class Bound(StrEnum):
    """A minute is any 60 seconds. A day and a month are those of the tenant's calendar: budgets."""

    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    PARALLEL = "parallel_requests"
    TOKENS_DAY = "tokens_per_day"
    TOKENS_MONTH = "tokens_per_month"
    MONEY_DAY = "money_per_day"
    MONEY_MONTH = "money_per_month"


MINUTES = frozenset({Bound.REQUESTS, Bound.TOKENS})
BUDGETS = frozenset({Bound.TOKENS_DAY, Bound.TOKENS_MONTH, Bound.MONEY_DAY, Bound.MONEY_MONTH})
MONEY = frozenset({Bound.MONEY_DAY, Bound.MONEY_MONTH})
TOKENS = frozenset({Bound.TOKENS, Bound.TOKENS_DAY, Bound.TOKENS_MONTH})
AT_GATE = frozenset({Bound.REQUESTS, Bound.PARALLEL})
"""What is counted before it is known what a request costs."""

READING = frozenset({Bound.REQUESTS})
"""What is counted of a request that only reads, ends or removes something."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one scope may use; ``None``: the default of its kind. Money is in the currency of the prices
    (``models[].cost_per_million_tokens``). 0 lets nothing through. ``time_zone`` (an IANA name, of a tenant
    only) is the zone of the calendar of all that is the tenant's."""

    scope: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    parallel_requests: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    money_per_day: float | None = None
    money_per_month: float | None = None
    time_zone: str | None = None


def kind_of(scope: str) -> str:
    return scope.partition(":")[0]


def calendar_of(scope: str, tenant: str) -> str:
    """The tenant by whose calendar a scope's days go: a model's are the same for all, ``""``."""
    return "" if kind_of(scope) == "model" else tenant


def model_in(scope: str) -> str | None:
    """The model whose scope it is, or whose use by a tenant."""
    kind, _, name = scope.partition(":")
    if kind == "use":
        return name.partition("/")[2]
    return name if kind == "model" else None


def problem_of(limit: Limit) -> tuple[str, str] | None:
    """The field that is wrong, and why; ``None`` if all is well."""
    kind, _, name = limit.scope.partition(":")
    parts = name.split("/", 1) if kind in {"user", "use"} else [name]
    if kind not in KINDS or not all(parts) or (kind in {"user", "use"} and len(parts) < 2):
        forms = "`key:ID`, `user:TENANT/NAME`, `tenant:NAME`, `model:NAME` or `use:TENANT/MODEL`"
        return "scope", f"expected {forms}"
    if len(limit.scope) > MOST_NAME_CHARS or not limit.scope.isprintable():
        return "scope", f"expected at most {MOST_NAME_CHARS} printable characters"
    for bound in Bound:
        value = getattr(limit, bound.value)
        most = MOST_MONEY if bound in MONEY else MOST
        if value is not None and not 0 <= value <= most:
            return bound.value, f"expected a number from 0 to {most}"
    if limit.time_zone is not None:
        if kind != "tenant":
            return "time_zone", "only a tenant has one; it holds for all that is the tenant's"
        if not is_zone(limit.time_zone):
            return "time_zone", "expected an IANA name such as `Europe/Berlin`"
    return None


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def amounts_of(limit: Limit) -> dict[Bound, int]:
    """In whole units: requests, tokens, or billionths of the currency."""
    given = {bound: getattr(limit, bound.value) for bound in Bound}
    return {
        bound: round(value * NANO) if bound in MONEY else int(value)
        for bound, value in given.items()
        if value is not None
    }


Bounds = Mapping[Bound, int]

NOTHING: Bounds = {}


class LimitTable:
    """All limits, found by scope. ``defaults``: by kind, for scopes that have none of their own.
    ``time_zone``: of tenants that have none."""

    def __init__(self, defaults: Mapping[str, Limit], time_zone: str = UTC) -> None:
        self._defaults = {kind: amounts_of(limit) for kind, limit in defaults.items()}
        self._own: dict[str, Limit] = {}
        self._bounds: dict[str, Bounds] = {}
        self._time_zone = time_zone

    @property
    def own(self) -> Mapping[str, Limit]:
        return self._own

    def put(self, limits: Iterable[Limit]) -> None:
        for limit in limits:
            self._own[limit.scope] = limit
            self._bounds[limit.scope] = {
                **self._defaults.get(kind_of(limit.scope), NOTHING),
                **amounts_of(limit),
            }

    def remove(self, scope: str) -> None:
        self._own.pop(scope, None)
        self._bounds.pop(scope, None)

    def replace(self, limits: Iterable[Limit]) -> None:
        self._own.clear()
        self._bounds.clear()
        self.put(limits)

    def of(self, scope: str) -> Bounds:
        bounds = self._bounds.get(scope)
        return self._defaults.get(scope.partition(":")[0], NOTHING) if bounds is None else bounds

    def time_zone(self, tenant: str) -> str:
        limit = self._own.get(f"tenant:{tenant}")
        return self._time_zone if limit is None or limit.time_zone is None else limit.time_zone


def sender_scopes(tenant: str, key_id: str | None, user: str | None) -> tuple[str, ...]:
    """The scopes of who sends a request, the narrowest first."""
    scopes = [] if key_id is None else [f"key:{key_id}"]
    if user is not None:
        scopes.append(f"user:{tenant}/{user}")
    return (*scopes, f"tenant:{tenant}")


def model_scopes(tenant: str, model: str) -> tuple[str, str]:
    """The scopes of what it asks for: a model's own name."""
    return f"use:{tenant}/{model}", f"model:{model}"
