"""Counts finished requests as usage: what one gateway has not reported yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime

from serve_app.monitoring.intake import COUNTING, HITS
from serve_app.monitoring.windows import OTHER
from serve_app.request.record import LASTING, RequestRecord
from serve_app.usage.prices import Prices, gpu_seconds
from serve_app.usage.rows import Counts, UsageRow

DAY_NS = 86_400 * 10**9
REFUSALS = frozenset({402, 403, 429})
ENGINE_STEPS = frozenset({"prefill", "decode"})

Running = Callable[[str, str], int | None]
"""Requests that run at a member (model, member) now; ``None``: it is no replica of ours."""

Key = tuple[int, str, str, str, str]


class Metering:
    """``names``: those that requests may be counted under. At most ``max_rows`` rows wait to be reported;
    further keys and users share one row of their tenant, and what finds no room even so is ``dropped``.
    ``cached_rate``: the part of its price that an answer of the cache costs."""

    def __init__(
        self,
        names: Collection[str],
        prices: Prices,
        running: Running,
        max_rows: int,
        *,
        cached_rate: float = 0.0,
    ) -> None:
        self._names = frozenset(names)
        self._prices = prices
        self._running = running
        self._max_rows = max_rows
        self._cached_rate = cached_rate
        self._rows: dict[Key, Counts] = {}
        self.dropped = 0
        """Requests that were not counted, since the start."""

    def take(self, record: RequestRecord) -> None:
        """A sink of finished requests: those of a tenant that ask something of a model."""
        tenant = record.tenant
        if tenant is None or not _asks_a_model(record):
            return
        model = record.model if record.model is None or record.model in self._names else OTHER
        counts = self._counts(
            (record.start_unix_ns // DAY_NS, tenant, record.key_id or "", record.user or "", model or "")
        )
        if counts is None:
            self.dropped += 1
            return
        counts.requests += 1
        status = record.status if record.error_status is None else record.error_status
        if status in REFUSALS:
            counts.refused += 1
        elif not record.client_gone and (status >= 500 or (record.error is not None and status < 400)):
            counts.failed += 1
        counts.audio_s += record.audio_s
        self._add_work(counts, record)

    def _add_work(self, counts: Counts, record: RequestRecord) -> None:
        price, tokens = self._prices.price(record.model), record.estimated or record.tokens
        tokens_in, tokens_out = tokens.prompt or 0, tokens.output or 0
        if record.cache in HITS:
            counts.cache_hits += 1
            counts.tokens_saved += tokens_in + tokens_out
            whole = price.of_tokens(tokens_in, tokens_out)
            counts.cost += self._cached_rate * whole
            counts.saved += (1.0 - self._cached_rate) * whole
            return
        counts.tokens_in += tokens_in
        counts.tokens_out += tokens_out
        counts.tokens_cached += tokens.cached or 0
        counts.cost += price.of_tokens(tokens_in, tokens_out)
        if price.devices and record.member is not None and record.model is not None:
            running = self._running(record.model, record.member)
            if running is not None:
                seconds = gpu_seconds(_engine_s(record), price.devices, running)
                counts.gpu_s += seconds
                counts.gpu_cost += price.of_gpu(seconds)

    def _counts(self, key: Key) -> Counts | None:
        counts = self._rows.get(key)
        if counts is not None:
            return counts
        if len(self._rows) >= self._max_rows:
            day, tenant, _, _, model = key
            key = (day, tenant, OTHER, "", model)
            if key in self._rows:
                return self._rows[key]
            if len(self._rows) >= 2 * self._max_rows:
                return None
        counts = self._rows[key] = Counts()
        return counts

    def drain(self, most: int) -> list[UsageRow]:
        """What was counted since the last call: the ``most`` rows that are oldest; the others wait."""
        if len(self._rows) <= most:
            taken, self._rows = self._rows, {}
        else:
            taken = {key: self._rows.pop(key) for key in list(self._rows)[:most]}
        return [
            UsageRow(_day(day), tenant, key_id, user, model, counts)
            for (day, tenant, key_id, user, model), counts in taken.items()
        ]


def _asks_a_model(record: RequestRecord) -> bool:
    is_asking = record.method == "POST" or record.endpoint == LASTING
    if not is_asking or record.route.startswith("/admin"):
        return False
    return record.model is not None or record.error is not None or record.route.endswith(COUNTING)


def _engine_s(record: RequestRecord) -> float:
    """What the engine says that it worked; else the time that was spent at the member."""
    worked = [step.duration_ms for step in record.steps if step.name in ENGINE_STEPS]
    return (sum(worked) if worked else record.upstream_ms) / 1000


def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).date().isoformat()
