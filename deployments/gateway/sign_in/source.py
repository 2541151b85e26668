"""Asks the provider of identities: its configuration, its keys, and for tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from deployments.wire.http1 import BrokenConnection, NoConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.settings.sign_in import OidcSettings, safe_url
from serve_app.sign_in.key_set import KeySet
from serve_app.sign_in.login import MAX_ANSWER_BYTES
from serve_app.sign_in.strict_json import read_object

CONFIGURATION = "/.well-known/openid-configuration"
READ_AHEAD = 1 << 16


class ProviderError(Exception):
    """The provider did not answer as it should; the text says why, and holds nothing that it said."""


class Source:
    """Made inside a running event loop. Redirects are not followed, answers have a limit of size and time.
    The configuration is asked for once, until ``forget``."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._pool = ConnectionPool(connect_timeout_s=settings.timeout_s, idle_s=0.0, read_ahead=READ_AHEAD)
        self._configuration: Mapping[str, object] | None = None
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._failed = ProviderError()
        self._failed_until = 0.0

    def forget(self) -> None:
        """Read the configuration again: what it names may have moved."""
        self._configuration = None

    def close(self) -> None:
        self._pool.close()

    async def keys(self) -> KeySet:
        url = self._settings.jwks_url
        if url is None:
            named = (await self.configuration()).get("jwks_uri")
            if not isinstance(named, str):
                raise ProviderError("its configuration names no `jwks_uri`")
            url = self.require_safe(named)
        answer = await self._get(url)
        try:
            return KeySet.read(answer)
        except ValueError as error:
            raise ProviderError(f"what it gives as keys is no JWKS: {error}") from None

    async def configuration(self) -> Mapping[str, object]:
        """Asked for once by all who want it; after a failure not again for ``min_refresh_s``, since everyone
        can begin a login. Raises: ProviderError."""
        async with self._asking:
            if self._configuration is None:
                if self._loop.time() < self._failed_until:
                    raise ProviderError(str(self._failed))
                try:
                    self._configuration = await self._read_configuration()
                except ProviderError as error:
                    # From its end on: else each who waits here waits for a time-out of their own, in turn.
                    self._failed_until = self._loop.time() + self._settings.min_refresh_s
                    self._failed = error
                    raise
            return self._configuration

    async def _read_configuration(self) -> Mapping[str, object]:
        answer = await self._get(self._settings.issuer.rstrip("/") + CONFIGURATION)
        try:
            found = read_object(answer)
        except ValueError as error:
            raise ProviderError(f"its configuration is no JSON object: {error}") from None
        if found.get("issuer") != self._settings.issuer:
            raise ProviderError("its configuration is that of another issuer")
        return found

    def require_safe(self, url: str) -> str:
        """A provider over HTTPS names nothing that is not. Raises: ProviderError."""
        try:
            safe_url(url)
            if self._settings.issuer.startswith("https:") and urlsplit(url).scheme != "https":
                raise ValueError("no https")
        except ValueError:
            raise ProviderError("its configuration names an address that is not HTTPS") from None
        return url

    async def _get(self, url: str) -> bytes:
        status, body = await self.ask(url, "GET", {"accept": "application/json"}, b"")
        if status != 200:
            raise ProviderError(f"it answered {status}" + (", a redirect" if 300 <= status < 400 else ""))
        return body

    async def ask(self, url: str, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Raises: ProviderError."""
        limit_s = self._settings.timeout_s
        try:
            parts = urlsplit(url)
            origin = Origin.of(f"{parts.scheme}://{parts.netloc}")
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            request = request_bytes(origin, method, target, {**headers, "connection": "close"}, body)
            async with asyncio.timeout(limit_s):
                return await self._pool.ask(origin, request, most=MAX_ANSWER_BYTES)
        except TimeoutError:
            raise ProviderError(f"no answer within {limit_s:g} s (auth.oidc.timeout_s)") from None
        except (NoConnection, BrokenConnection, OSError) as error:
            raise ProviderError(f"{type(error).__name__}: {error}") from None
        except ValueError as error:  # a name that is none, such as one with a label of 64 characters
            raise ProviderError(f"its address cannot be used: {type(error).__name__}") from None
