"""The salt under which engines keep a request's prefix in their caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.openai.requests import own_cache_salt, refuse_named_media
from serve_app.request.tenant_marks import TenantMarks


class PrefixSalts:
    """``shared``: all tenants use the same cached prefixes (``gateway.share_prefixes``). ``has_keys``: there
    is more than one tenant."""

    def __init__(self, marks: TenantMarks, *, shared: bool, has_keys: bool) -> None:
        self._marks = marks
        self._shared = shared
        self._refuses_named_media = has_keys and not shared

    def salt(self, tenant: str, fields: Mapping[str, Any]) -> str | None:
        """The salt of a request with these body fields; ``None`` where tenants share.

        Raises:
            BadRequest: ``cache_salt`` is invalid, or media have names that tenants would share.
        """
        own = own_cache_salt(fields)
        if self._refuses_named_media:
            refuse_named_media(fields)
        return None if self._shared else self._marks.prefix_salt(tenant, own)
