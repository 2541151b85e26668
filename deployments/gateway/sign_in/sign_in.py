"""All that one gateway has of sign-in: made together, ended together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deployments.gateway.request.exchange import Exchange, Handler
from deployments.platform.steady_clock import SteadyClock
from serve_app.errors import NotFound, SettingsError
from serve_app.request.auth import Identity
from serve_app.settings import KeySettings, Settings
from serve_app.settings.sign_in import OidcSettings

if TYPE_CHECKING:
    from deployments.gateway.sign_in.endpoints import ConsoleSignIn
    from deployments.gateway.sign_in.identities import Identities


class GatewaySignIn:
    """Made inside a running event loop; ``close`` ends it. ``secret`` is the same for all gateways of an
    application; ``client_secret`` is the console's at the provider. Without settings there is no sign-in."""

    def __init__(self, settings: OidcSettings | None, secret: bytes, client_secret: str | None) -> None:
        self._identities: Identities | None = None
        self._console: ConsoleSignIn | None = None
        if settings is None:
            return
        # Here, not at the top: a start without sign-in does not wait a tenth of a second for joserfc.
        from deployments.gateway.sign_in.endpoints import ConsoleSignIn
        from deployments.gateway.sign_in.identities import Identities

        now = SteadyClock()
        self._identities = identities = Identities(settings, secret, now)
        if identities.sessions is not None:
            self._console = ConsoleSignIn(
                settings, identities, identities.sessions, secret=secret, client_secret=client_secret, now=now
            )

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        if self._console is not None:
            return {"me": me, **self._console.handlers}
        return {"me": me, "sign_in": _off, "sign_in_callback": _off, "sign_out": _off}

    @property
    def has_console(self) -> bool:
        return self._console is not None

    async def of(self, headers: Mapping[str, str]) -> Identity | None:
        """See :meth:`Identities.of`."""
        return None if self._identities is None else await self._identities.of(headers)

    async def close(self) -> None:
        if self._identities is not None:
            await self._identities.close()


async def me(exchange: Exchange) -> None:
    """Who sends this request, and what they may do."""
    identity = exchange.identity
    exchange.response_headers["cache-control"] = "no-store"
    await exchange.respond_json(
        {
            "tenant": identity.tenant,
            "user": identity.user,
            "role": identity.role.value,
            "models": identity.models,
            "key_id": identity.key_id,
            "expires_at": identity.expires_at,
        }
    )


async def _off(exchange: Exchange) -> None:
    raise NotFound("Sign-in is off here (auth.oidc.console): use a key.", code="sign_in_off")


def oidc_settings(settings: Settings) -> OidcSettings | None:
    return settings.auth.oidc if isinstance(settings.auth, KeySettings) else None


def client_secret(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The secret of the console's client; ``None`` for a public client.

    Raises:
        SettingsError: its variable is not set; the message names the variable.
    """
    oidc = oidc_settings(settings)
    console = None if oidc is None else oidc.console
    if console is None or console.client_secret_env is None:
        return None
    secret = environment.get(console.client_secret_env, "").strip()  # files end with a newline
    if not secret:
        raise SettingsError(
            f"auth.oidc.console: the variable {console.client_secret_env} (`client_secret_env`) is not set "
            "where the application is built"
        )
    return secret
