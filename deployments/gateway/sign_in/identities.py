"""Who sends a request that carries a token of the provider, or the console's session."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deployments.gateway.sign_in.provider import Provider
from serve_app.request.auth import Identity
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.claims import identity_of
from serve_app.sign_in.session import Sessions
from serve_app.sign_in.tokens import Checker, Claims, looks_like_token
from serve_app.sign_in.verified import VerifiedTokens


class Identities:
    """Made inside a running event loop; ``close`` ends it. ``secret`` is shared by all gateways of the
    application; ``now`` gives Unix seconds that never go back: what has expired stays so."""

    def __init__(self, settings: OidcSettings, secret: bytes, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._verified = VerifiedTokens()
        self.checker = Checker(settings)
        self.provider = Provider(settings, self._verified.clear)
        console = settings.console
        self.sessions = (
            None if console is None else Sessions(secret, settings.issuer, console.url, console.session_s)
        )

    async def of(self, headers: Mapping[str, str]) -> Identity | None:
        """``None`` for a request with neither: a key may tell who sends it. A token that is not valid is an
        error, whatever else the request carries.

        Raises:
            Unauthorized: the token is not valid.
            Forbidden: it is, but its claims map to no user here; or a session comes from another page.
            SignInUnavailable: the provider's keys are missing.
        """
        given = headers.get("authorization")
        if given is not None:
            scheme, _, bearer = given.partition(" ")
            token = bearer.strip()
            is_token = scheme.lower() == "bearer" and looks_like_token(token)
            return await self._of_token(token) if is_token else None
        if self.sessions is None or "cookie" not in headers or "x-api-key" in headers:
            return None
        return self.sessions.identity(headers, self._now())

    async def _of_token(self, token: str) -> Identity:
        known = self._verified.find(token, self._now())
        if known is not None:
            return known
        header = self.checker.header(token)
        keys = await self.provider.keys(header.kid)
        claims = self.checker.claims(token, header, keys, self._now())
        identity = identity_of(claims, self._settings, self.checker.expires_at(claims))
        self._verified.add(token, identity)
        return identity

    async def of_login(self, token: str, client_id: str, own: Callable[[Claims], None]) -> Identity:
        """The identity that the console's identity token proves; ``own`` checks that it answers this login.
        Raises: as ``of``."""
        header = self.checker.header(token)
        keys = await self.provider.keys(header.kid)
        claims = self.checker.claims(token, header, keys, self._now(), audiences=(client_id,))
        own(claims)
        return identity_of(claims, self._settings, self.checker.expires_at(claims))

    async def close(self) -> None:
        await self.provider.close()
