"""The console's session: who signed in, in a sealed cookie, and from which pages it counts."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from serve_app.api.roles import Role
from serve_app.errors import OriginNotAllowed
from serve_app.request.auth import Identity
from serve_app.sign_in.sealed import Sealer

SESSION = "promptly-session"
LOGIN = "promptly-sign-in"
HOST_ONLY = "__Host-"
"""Browsers take a cookie of such a name only over HTTPS, from the very host, for all its paths: no other
host of the domain can plant one."""


class Session(msgspec.Struct, frozen=True):
    """``expires_at``: Unix seconds."""

    tenant: str
    user: str
    role: Role
    models: tuple[str, ...] | None
    expires_at: float


class Cookies:
    """Names and attributes of the cookies of the application at ``url``."""

    def __init__(self, url: str) -> None:
        self._is_secure = url.startswith("https://")
        self.session = self._named(SESSION)
        self.login = self._named(LOGIN)

    def _named(self, name: str) -> str:
        return HOST_ONLY + name if self._is_secure else name

    def set(self, name: str, value: str, max_age_s: float, *, same_site: str) -> str:
        """The value of `Set-Cookie`; ``max_age_s`` 0 removes it. Scripts cannot read it (`HttpOnly`)."""
        secure = "; Secure" if self._is_secure else ""
        return f"{name}={value}; Path=/; Max-Age={int(max_age_s)}; HttpOnly; SameSite={same_site}{secure}"


class Sessions:
    """Makes sessions and reads them. ``url``: the application's address, as browsers see it."""

    def __init__(self, secret: bytes, issuer: str, url: str, session_s: float) -> None:
        self._sealer = Sealer(secret, f"session:{issuer}", Session)
        self._origin = origin_of(url)
        self._session_s = session_s
        self.cookies = Cookies(url)

    def begin(self, identity: Identity, now: float) -> str:
        """`Set-Cookie` for who has just signed in. Raises: ValueError: the identity is too large for it."""
        session = Session(
            identity.tenant, identity.user or "", identity.role, identity.models, now + self._session_s
        )
        sealed = self._sealer.seal(session)
        return self.cookies.set(self.cookies.session, sealed, self._session_s, same_site="Strict")

    def end(self) -> str:
        """`Set-Cookie` that removes the session from the browser."""
        return self.cookies.set(self.cookies.session, "", 0, same_site="Strict")

    def identity(self, headers: Mapping[str, str], now: float) -> Identity | None:
        """Who is signed in; ``None`` without a session that counts.

        Raises:
            OriginNotAllowed: a session came, but not from a page of this application.
        """
        value = cookie(headers, self.cookies.session)
        session = None if value is None else self._sealer.open(value)
        if session is None or session.expires_at <= now:
            return None
        self.require_own_page(headers)
        return Identity(
            session.tenant,
            session.role,
            user=session.user,
            models=session.models,
            expires_at=session.expires_at,
        )

    def require_own_page(self, headers: Mapping[str, str]) -> None:
        """Browsers add cookies by themselves, also to what another page sends: so a request must prove its
        page by `Origin` or `Sec-Fetch-Site`, which no script can set.

        Raises:
            OriginNotAllowed: it does not.
        """
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        is_own = site in (None, "same-origin") if origin == self._origin else False
        if not is_own and not (origin is None and site == "same-origin"):
            raise OriginNotAllowed(origin or site or "an unknown origin")


def origin_of(url: str) -> str:
    """The origin as browsers write it: in lower case, without a default port."""
    parts = urlsplit(url)
    default = {"https": 443, "http": 80}[parts.scheme]
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in (None, default) else "")


def cookie(headers: Mapping[str, str], name: str) -> str | None:
    """The value of a cookie; ``None`` if there is none, or if two of that name came."""
    lines = headers.get("cookie", "").replace(",", ";").split(";")
    values = [value for key, _, value in (line.strip().partition("=") for line in lines) if key == name]
    return values[0] if len(values) == 1 else None
