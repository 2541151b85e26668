"""The rows of usage. They hold names and numbers, never text of a prompt or an answer, nor a secret."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct):
    """What was used. ``refused``: by a limit, a budget or a missing right (402, 403, 429); ``failed``: for
    reasons that are not the client's. ``tokens_in`` and ``tokens_out`` are those that a member worked on;
    ``tokens_cached`` of ``tokens_in`` it still had in its prefix cache. ``cache_hits``: requests that the
    gateway's cache answered; ``tokens_saved``: their prompt and answer tokens. ``audio_s``: seconds of
    recordings. ``gpu_s``: see :func:`serve_app.usage.prices.gpu_seconds`. ``cost``: by the price of tokens,
    ``gpu_cost``: by the price of a device's hour, ``saved``: by the price of tokens, what the answers of the
    cache would have cost beyond what they did cost; all three in the currency of the settings."""

    requests: int = 0
    refused: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cache_hits: int = 0
    tokens_saved: int = 0
    audio_s: float = 0.0
    gpu_s: float = 0.0
    cost: float = 0.0
    gpu_cost: float = 0.0
    saved: float = 0.0

    def values(self) -> tuple[int | float, ...]:
        """The counts in the order of ``COUNTS``."""
        return msgspec.structs.astuple(self)


COUNTS = Counts.__struct_fields__
WHOLE = frozenset(COUNTS[:8])
"""Those that are whole numbers."""

DIMENSIONS = ("day", "tenant", "key", "user", "model")


class UsageRow(msgspec.Struct, frozen=True):
    """``day``: the UTC day on which the requests began, as ``YYYY-MM-DD``. ``key``: a key's public id, empty
    without keys; ``user``: whom the key names, else empty; ``model``: a name of the settings, ``other``, or
    empty where the request was refused before its model was known."""

    day: str
    tenant: str
    key: str
    user: str
    model: str
    counts: Counts


class UsageGroup(msgspec.Struct, frozen=True):
    """Usage of one group: ``of`` are the values of the query's ``by``, in its order."""

    of: tuple[str, ...]
    counts: Counts


class UsagePage(msgspec.Struct, frozen=True):
    """The answer to a query. ``more``: there are more groups than the query's ``limit``; ``total`` is that of
    all of them."""

    groups: list[UsageGroup]
    total: Counts
    more: bool = False
