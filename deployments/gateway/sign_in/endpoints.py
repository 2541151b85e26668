"""`/sign-in`, its callback and `/sign-out`: the console's login."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs

from deployments.gateway.request.exchange import HTML, Exchange, Handler
from deployments.gateway.sign_in.identities import Identities
from serve_app.errors import BadRequest, OverCapacity
from serve_app.request.auth import Identity
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.login import LOGIN_S, Login, Logins, SignInFailed, identity_token
from serve_app.sign_in.pages import POLICY, failure_page, is_browser
from serve_app.sign_in.session import Sessions, cookie

MOST_LOGINS = 16
"""Codes that one gateway redeems at once: each is a request to the provider, which anyone can cause."""

FIRST_PAGE = "playground"
NO_STORE = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""The callback's address holds the code: it goes into no cache and no `Referer`."""


class ConsoleSignIn:
    """``secret`` as for :class:`Identities`; ``client_secret`` is that of the console's client; ``now`` gives
    Unix seconds."""

    def __init__(
        self,
        settings: OidcSettings,
        identities: Identities,
        sessions: Sessions,
        *,
        secret: bytes,
        client_secret: str | None,
        now: Callable[[], float],
    ) -> None:
        assert settings.console is not None, "there are sessions"
        self._console = console = settings.console
        self._identities = identities
        self._sessions = sessions
        self._logins = Logins(secret, settings.issuer, console)
        self._client_secret = client_secret
        self._now = now
        self._redeeming = 0

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {"sign_in": self.begin, "sign_in_callback": self.returned, "sign_out": self.end}

    async def begin(self, exchange: Exchange) -> None:
        """Send the browser to the provider. Raises: BadRequest, SignInUnavailable."""
        _show_errors(exchange)
        try:
            asked = parse_qs(exchange.query.decode("ascii"), max_num_fields=20).get("page", [FIRST_PAGE])
        except ValueError:
            raise BadRequest("The query cannot be read.", param="page", code="unknown_page") from None
        endpoints = await self._identities.provider.endpoints()
        url, sealed = self._logins.begin(endpoints, asked[-1], self._now())
        cookies = self._sessions.cookies
        exchange.cookies.append(cookies.set(cookies.login, sealed, LOGIN_S, same_site="Lax"))
        await _redirect(exchange, url)

    async def returned(self, exchange: Exchange) -> None:
        """The browser comes back with a code: begin its session.

        Raises:
            SignInFailed, Unauthorized, Forbidden: the login does not count, or its claims map to no user.
            OverCapacity: too many come back at once.
            SignInUnavailable: the provider does not answer.
        """
        cookies = self._sessions.cookies
        sealed = cookie(exchange.headers, cookies.login)
        exchange.response_headers |= NO_STORE  # of errors too
        _show_errors(exchange)
        login, code = self._logins.returned(sealed, exchange.query, self._now())
        exchange.cookies.append(cookies.set(cookies.login, "", 0, same_site="Lax"))  # it counts once
        exchange.identity = identity = await self._redeem(login, code)
        try:
            exchange.cookies.append(self._sessions.begin(identity, self._now()))
        except ValueError:
            raise SignInFailed("the token lists too many models for a cookie") from None
        await _redirect(exchange, f"{self._console.url}/console#/{login.page}")

    async def _redeem(self, login: Login, code: str) -> Identity:
        if self._redeeming >= MOST_LOGINS:
            raise OverCapacity(f"{MOST_LOGINS} sign-ins are being finished.", 1)
        self._redeeming += 1
        try:
            provider = self._identities.provider
            endpoints = await provider.endpoints()
            headers, body = self._logins.exchange(endpoints, login, code, self._client_secret)
            status, answer = await provider.post(endpoints.token_endpoint, headers, body)
            if status != 200:
                raise SignInFailed(f"the provider did not accept the code (status {status})")
            own = partial(self._logins.require_own, login=login)
            return await self._identities.of_login(identity_token(answer), self._console.client_id, own)
        finally:
            self._redeeming -= 1

    async def end(self, exchange: Exchange) -> None:
        """Remove the session from the browser. Raises: OriginNotAllowed: another page asks for it."""
        self._sessions.require_own_page(exchange.headers)  # also where a browser held the cookie back
        exchange.cookies.append(self._sessions.end())
        await exchange.respond_json({"signed_in": False})


async def _redirect(exchange: Exchange, url: str) -> None:
    await exchange.respond(302, b"", HTML, {**NO_STORE, "location": url})


def _show_errors(exchange: Exchange) -> None:
    """Makes errors a page, where a person looks at them."""
    if is_browser(exchange.headers.get("accept", "")):
        exchange.error_page = lambda error: failure_page(error, exchange.request_id)
        exchange.response_headers["content-security-policy"] = POLICY
