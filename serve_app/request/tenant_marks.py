"""What stands for a tenant in processes that must keep tenants apart, and need not know who they are.

A mark is an HMAC under a secret of this start of the application: whoever sees one can neither make another
tenant's nor tell whose it is.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

import msgspec

SECRET_BYTES = 32


def new_secret() -> bytes:
    """Of one start; every gateway of the application is given the same, so that all mark alike."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class TenantMarks:
    """Marks for different uses have nothing in common: what is seen of one says nothing about another."""

    secret: bytes = field(repr=False)

    def prefix_salt(self, tenant: str, own: str | None) -> str:
        """For an engine's prefix cache. ``own`` is the salt that the client sent itself: it separates further
        within the tenant, and never meets another tenant's."""
        return self._mark("prefix", tenant, own)

    def embedding_tag(self, tenant: str) -> str:
        """For the embedder's memory of recent texts."""
        return self._mark("embedding", tenant)

    def _mark(self, *parts: str | None) -> str:
        # As JSON no two lists of parts have the same bytes.
        return hmac.digest(self.secret, msgspec.json.encode(parts), "sha256").hex()
