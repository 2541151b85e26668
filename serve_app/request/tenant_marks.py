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
SESSION_CHARS = 16
KNOWN_MARKS = 4096
"""Marks that are remembered: an HMAC costs 20 to 40 µs, on the path of every request."""


def new_secret() -> bytes:
    """A new secret for one start. All gateways of the application share it, so they make the same marks."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class TenantMarks:
    """Marks for different uses are unrelated: seeing one reveals nothing about another."""

    secret: bytes = field(repr=False)
    _known: dict[tuple[str | None, ...], str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def prefix_salt(self, tenant: str, own: str | None) -> str:
        """The salt for an engine's prefix cache. ``own`` is the client's own salt: it separates further
        within the tenant, and can never match another tenant's."""
        return self._mark("prefix", tenant, own)

    def embedding_tag(self, tenant: str) -> str:
        """The tag for the embedder's cache of recent texts."""
        return self._mark("embedding", tenant)

    def session(self, session: str) -> str:
        """What records and log lines call a session (see ``RequestRecord``): clients put users' addresses
        into their names, and without the secret no one can guess names and compare."""
        return self._mark("session", session.encode("utf-8", "surrogatepass").hex())[:SESSION_CHARS]

    def _mark(self, *parts: str | None) -> str:
        mark = self._known.get(parts)
        if mark is None:
            if len(self._known) >= KNOWN_MARKS:  # clients choose salts of their own
                self._known.clear()
            # As JSON, no two lists of parts have the same bytes.
            mark = hmac.digest(self.secret, msgspec.json.encode(parts), "sha256").hex()
            self._known[parts] = mark
        return mark
