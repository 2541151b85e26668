"""The limits of the settings, as quotas have them."""

from __future__ import annotations

from serve_app.quotas.limits import KINDS, Limit, LimitTable
from serve_app.settings import AccountSettings


def table_of(settings: AccountSettings) -> LimitTable:
    """The default limits; no scope has limits of its own yet."""
    defaults = {
        kind: Limit(f"{kind}:", **getattr(settings.limits, kind).model_dump(exclude_none=True))
        for kind in KINDS
    }
    return LimitTable(defaults, settings.time_zone)
