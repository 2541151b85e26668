"""Users who are refused whatever they send: else a token of a provider works until it expires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from serve_app.errors import AccountsUnavailable, BadRequest, Forbidden
from serve_app.json_errors import in_json_words, no_json
from serve_app.request.auth import TENANT_PATTERN, Identity

MAX_NAME_CHARS = 256
"""The same bound as that of the names in tokens (`sign_in/claims.py`)."""

MOST, MOST_OF_TENANT = 10_000, 1000
"""So few that a gateway takes all of them at each change."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]


class RefusedUser(msgspec.Struct, frozen=True, kw_only=True):
    """``holds_admins``: an administrator of the application has refused the user, so that this also holds for
    one who is such an administrator, and no tenant's administrator ends it. ``at``: Unix seconds."""

    tenant: str
    user: str
    at: float
    by: str = ""
    holds_admins: bool = False


class Refused(msgspec.Struct, frozen=True):
    """All of them. ``version`` is another one after each change."""

    version: str
    users: tuple[RefusedUser, ...]


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user whom an administrator names. Without a tenant it is the administrator's own."""

    user: Name
    tenant: Annotated[str, msgspec.Meta(pattern=TENANT_PATTERN)] | None = None


class RefusedUsers:
    """Those that this process knows."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], RefusedUser] = {}
        self.version: str | None = None
        """``None``: they did not come here yet."""

    def replace(self, all_of_them: Refused) -> None:
        self._by_name = {(each.tenant, each.user): each for each in all_of_them.users}
        self.version = all_of_them.version

    def put(self, users: Iterable[RefusedUser]) -> None:
        self._by_name |= {(each.tenant, each.user): each for each in users}

    def remove(self, tenant: str, user: str) -> None:
        self._by_name.pop((tenant, user), None)

    def require_let_in(self, identity: Identity) -> None:
        """Raises:
        Forbidden: the user is refused.
        AccountsUnavailable: that is not known yet, and nothing else than this ends what a token may do.
        """
        if identity.user is None:
            return
        if self.version is None and identity.key_id is None:
            raise AccountsUnavailable("which users are refused is not known here yet")
        found = self._by_name.get((identity.tenant, identity.user))
        if found is not None and (found.holds_admins or not identity.admin):
            raise Forbidden(
                f"The user {identity.user!r} of the tenant {identity.tenant!r} is refused by an "
                "administrator.",
                code="user_refused",
            )


def named_in(body: bytes) -> Named:
    """Raises: BadRequest: it names the wrong field."""
    try:
        named = msgspec.json.decode(body, type=Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = re.search(r"\$\.(\w+)|field `(\w+)`", str(error))
        param = None if found is None else found[1] or found[2]
        raise BadRequest(f"{no_json(error, body)}.", param=param, code="invalid_value") from error
    return _printable(named)


def named_by(query: Mapping[str, str]) -> Named:
    """The same, of a query. Raises: BadRequest."""
    try:
        return _printable(msgspec.convert(dict(query), Named))
    except msgspec.ValidationError as error:
        raise BadRequest(f"{in_json_words(str(error))}.", code="invalid_value") from error


def _printable(named: Named) -> Named:
    if not named.user.isprintable():
        raise BadRequest("`user`: expected printable characters.", param="user", code="invalid_value")
    return named
