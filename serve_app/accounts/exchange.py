"""What each gateway and the owner of the accounts tell one another, several times a second."""

from __future__ import annotations

import msgspec

from serve_app.accounts.refused import Refused
from serve_app.quotas.messages import LimitChanges
from serve_app.request.auth import KeyRecord
from serve_app.usage import UsageRow

PERIOD_S = 0.25
"""Between two exchanges: a change is in force everywhere well within a second."""

PAGE = 2000
"""Keys in one answer: some milliseconds of work for either side."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's report. ``seq`` counts them: one that is not answered is sent again as it is, and the
    owner applies each once. ``store``: the file that ``keys_version`` is of, empty at first.
    ``keys_forgotten``: as in ``Changes``, of the last answer. ``refused``: the version of the refused users
    that it knows."""

    gateway: str
    seq: int
    store: str = ""
    keys_version: int = 0
    keys_forgotten: int = 0
    usage: tuple[UsageRow, ...] = ()
    limits_version: int = 0
    refused: str | None = None

    @property
    def is_empty(self) -> bool:
        """It only asks: there is nothing to write. What a field adds to a report is named here."""
        return not self.usage


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report. ``keys``: those that are new or changed since its version; ``revoked``: the ids
    that are no keys any more. ``fresh``: forget all earlier ones. ``more``: ask again at once.
    ``keys_forgotten``: revocations up to this version may have left the file, so that a gateway which has not
    seen them reads everything again. ``refused``: all refused users, if the gateway knows others."""

    store: str
    keys_version: int
    keys: tuple[KeyRecord, ...] = ()
    revoked: tuple[str, ...] = ()
    fresh: bool = False
    more: bool = False
    keys_forgotten: int = 0
    limits: LimitChanges | None = None
    refused: Refused | None = None
