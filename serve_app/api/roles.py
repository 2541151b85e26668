"""What a key's holder is to the application: user, viewer or administrator, and what each may do."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """``user``: sends requests. ``viewer``: looks at `/admin` pages that hold no text, and sends none.
    ``tenant_admin``: a user who also keeps the keys of the own tenant. ``admin``: may do everything."""

    USER = "user"
    VIEWER = "viewer"
    TENANT_ADMIN = "tenant_admin"
    ADMIN = "admin"


EVERYONE = frozenset(Role)
SENDERS = frozenset({Role.USER, Role.TENANT_ADMIN, Role.ADMIN})
LOOKERS = frozenset({Role.VIEWER, Role.ADMIN})
KEEPERS = frozenset({Role.TENANT_ADMIN, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
