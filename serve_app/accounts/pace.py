"""How often a tenant's own administrators may change something. Each try has lines in the audit log, whose
oldest files are removed at its bound: without this one tenant could push out the lines of all others."""

from __future__ import annotations

import math

from serve_app.errors import RateLimited


class ChangePace:
    """A bucket for each tenant: it holds a minute's worth, and fills up evenly. There are as many as tenants
    with an administrator of their own."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, tenant: str, now: float) -> None:
        """``now``: monotonic seconds.

        Raises:
            RateLimited: the tenant has changed too much in the last minute.
        """
        left, at = self._buckets.get(tenant, (float(self._most), now))
        left = min(self._most, left + (now - at) * self._most / 60)
        if left < 1:
            raise RateLimited(
                f"The administrators of this tenant have tried {self._most} changes within a minute "
                "(accounts.tenant_changes_per_minute).",
                math.ceil((1 - left) * 60 / self._most),
            )
        self._buckets[tenant] = (left - 1, now)
