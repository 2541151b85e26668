"""Pseudonyms of tenants, for processes that must keep tenants apart without knowing them.

A mark is an HMAC under a secret of this start of the application: someone who sees a mark can neither forge
another tenant's nor tell which tenant it belongs to.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

import msgspec

SECRET_BYTES = 32


def new_secret() -> bytes:
    """A new secret for one start. All gateways of the application share it, so they make the same marks."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class TenantMarks:
    """Marks for different uses are unrelated: seeing one reveals nothing about another."""

    secret: bytes = field(repr=False)

    def prefix_salt(self, tenant: str, own: str | None) -> str:
        """The salt for an engine's prefix cache. ``own`` is the client's own salt: it separates further
        within the tenant, and can never match another tenant's."""
        return self._mark("prefix", tenant, own)

    def embedding_tag(self, tenant: str) -> str:
        """The tag for the embedder's cache of recent texts."""
        return self._mark("embedding", tenant)

    def _mark(self, *parts: str | None) -> str:
        # As JSON, no two lists of parts have the same bytes.
        return hmac.digest(self.secret, msgspec.json.encode(parts), "sha256").hex()
