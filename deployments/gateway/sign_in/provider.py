"""The provider of identities: its configuration and its keys, fetched beside the requests that need them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from deployments.gateway.sign_in.source import ProviderError, Source
from serve_app.errors import SignInUnavailable
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.key_set import KeySet
from serve_app.sign_in.login import Endpoints

logger = logging.getLogger("ray.serve")


class Provider:
    """Fetches the keys on a period, and sooner when a token names one that is not known. While the provider
    cannot be reached, the known keys count for ``keep_keys_s``, and the log has one line. Redirects are not
    followed. ``changed`` is called when the keys are others than before; ``clock`` gives seconds that no step
    of the machine's clock changes."""

    def __init__(
        self,
        settings: OidcSettings,
        changed: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._changed = changed
        self._clock = clock
        self._source = Source(settings)
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._problem = ""
        self._fetching: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._refresh_forever())

    async def close(self) -> None:
        tasks = [task for task in (self._task, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._source.close()

    async def keys(self, kid: str | None) -> KeySet:
        """The keys for a token that names ``kid``. If that is none of them, they are fetched again first,
        unless that was done a moment ago.

        Raises:
            SignInUnavailable: there are none, or they are too old.
        """
        known = self._known()
        if (known is None or not known.knows(kid)) and self._may_fetch():
            await self._fetch_once()
            known = self._known()
        if known is None:
            why = self._problem or "they have not been fetched yet"
            raise SignInUnavailable(f"no keys are known: {why}")
        return known

    async def endpoints(self) -> Endpoints:
        """What a login needs of the provider's configuration. Raises: SignInUnavailable."""
        try:
            found = msgspec.convert(await self._source.configuration(), Endpoints)
            for url in (found.authorization_endpoint, found.token_endpoint):
                self._source.require_safe(url.partition("?")[0])
        except (ProviderError, msgspec.ValidationError) as error:
            raise SignInUnavailable(str(error)) from None
        return found

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises: SignInUnavailable."""
        try:
            return await self._source.ask(url, "POST", headers, body)
        except ProviderError as error:
            raise SignInUnavailable(str(error)) from None

    def _known(self) -> KeySet | None:
        is_old = self._clock() - self._fetched_at > self._settings.keep_keys_s
        return None if is_old else self._keys

    def _may_fetch(self) -> bool:
        """Tokens name keys as they like: that makes no more than one request in ``min_refresh_s``. A
        caller that comes while one runs waits for it."""
        if self._fetching is not None or self._tried_at is None:
            return True
        return self._clock() - self._tried_at >= self._settings.min_refresh_s

    async def _refresh_forever(self) -> None:
        while True:
            await self._fetch_once()
            least_s, period_s = self._settings.min_refresh_s, self._settings.refresh_s
            await asyncio.sleep(max(least_s, period_s if not self._problem else min(period_s, 30.0)))

    async def _fetch_once(self) -> None:
        """One fetch for all callers that want it; one that leaves does not end it for the others."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        await asyncio.shield(self._fetching)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        self._tried_at = self._clock()
        try:
            keys = await self._source.keys()
        except ProviderError as error:
            self._source.forget()
            self._complain(str(error))
            return
        if self._problem:
            logger.info("auth.oidc: the provider's keys are there again")
        self._problem, self._fetched_at = "", self._clock()
        if keys != self._keys:
            self._keys = keys
            self._changed()

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            state = "the known ones go on" if self._known() is not None else "no token can be checked"
            logger.error("auth.oidc: the provider's keys cannot be fetched (%s): %s", state, problem)
        self._problem = problem
