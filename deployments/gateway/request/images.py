"""Images that a chat names by URL: fetched from public addresses, checked, and put into the request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from deployments.gateway.request.tenant_room import TenantRoom
from serve_app.errors import BadRequest, OverCapacity
from serve_app.media.addresses import is_allowed_host
from serve_app.media.data_urls import check_data_url, check_image, data_url, too_large
from serve_app.media.parts import ImagePart, images_of, with_images
from serve_app.settings.media import MediaSettings

REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {"accept": "image/*", "accept-encoding": "identity", "user-agent": "promptly"}
NO_ADDRESS = "its host has no public address"

IsPublic = Callable[[str], bool]


class _NotPublic(OSError):
    """A name leads to an address that no client may reach through the gateway."""


class Images:
    """``is_public`` judges the addresses that names lead to."""

    def __init__(self, settings: MediaSettings, is_public: IsPublic) -> None:
        self._settings = settings
        self._is_public = is_public
        self._room = TenantRoom(settings.max_fetches, settings.max_fetches_per_tenant)

    def check(self, fields: Mapping[str, Any]) -> list[ImagePart]:
        """Look at all images of a request that holds them; the others, which are to be fetched.

        It reads the decoded fields: a search of the body's bytes would not find a name with escapes.

        Raises:
            BadRequest: there are too many, or one is no image within the limits.
        """
        images = images_of(fields, self._settings.max_images)
        for image in images:
            if image.is_held:
                check_data_url(image.url, image.param, self._settings)
        return [image for image in images if image.is_remote] if self._settings.allowed_domains else []

    async def take_in(self, fields: dict[str, Any], tenant: str) -> dict[str, Any]:
        """The fields with every image as a ``data:`` URL that was checked; the same object if none had to be
        fetched. Raises: what ``check`` and ``fetch`` raise."""
        remote = self.check(fields)
        return await self.fetch(fields, remote, tenant) if remote else fields

    async def fetch(self, fields: Mapping[str, Any], remote: list[ImagePart], tenant: str) -> dict[str, Any]:
        """The fields with ``data:`` URLs in the place of ``remote``.

        Raises:
            BadRequest: an image may not be fetched, cannot be fetched, or is no image within the limits.
            OverCapacity: others fetch as many as may be fetched at once.
        """
        wanted = min(len(remote), self._settings.max_fetches_per_tenant, self._settings.max_fetches)
        with await self._room.wait(tenant, wanted, self._settings.fetch_timeout_s) as places:
            if not places.size:
                raise self._full(tenant)
            try:
                urls = await self._fetch_all(remote, asyncio.Semaphore(places.size))
            except TimeoutError:
                if places.size < wanted:  # with more room they might have been there in time
                    raise self._full(tenant) from None
                limit_s = self._settings.fetch_timeout_s
                why = f"not there within {limit_s:g} s (media.fetch_timeout_s)"
                raise _not_fetched(remote[0], why) from None
        return with_images(fields, urls)

    def _full(self, tenant: str) -> OverCapacity:
        own = self._room.is_tenants_own(tenant)
        setting = "max_fetches_per_tenant" if own else "max_fetches"
        return OverCapacity(f"Too many images are being fetched (media.{setting}).", 1)

    async def _fetch_all(self, images: list[ImagePart], at_once: asyncio.Semaphore) -> dict[ImagePart, str]:
        """Raises: TimeoutError, BadRequest."""
        limit_s, left = self._settings.fetch_timeout_s, _FetchBudget(self._settings.max_fetched_bytes)
        connector = aiohttp.TCPConnector(resolver=_PublicOnly(self._is_public), force_close=True)
        async with (
            asyncio.timeout(limit_s),
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers=HEADERS,
            ) as http,
        ):
            urls = await asyncio.gather(*(self._fetch(http, image, left, at_once) for image in images))
        return dict(zip(images, urls, strict=True))

    async def _fetch(
        self, http: aiohttp.ClientSession, image: ImagePart, left: _FetchBudget, at_once: asyncio.Semaphore
    ) -> str:
        async with at_once:
            try:
                data = await self._follow(http, image, left)
            except _NotPublic:
                raise _not_fetched(image, NO_ADDRESS) from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                if isinstance(error, TimeoutError):
                    raise
                is_inside = isinstance(error.__cause__, _NotPublic)
                raise _not_fetched(image, NO_ADDRESS if is_inside else type(error).__name__) from None
        return data_url(check_image(data, image.param, self._settings), data)

    async def _follow(self, http: aiohttp.ClientSession, image: ImagePart, left: _FetchBudget) -> bytes:
        url = image.url
        for _ in range(self._settings.max_redirects + 1):
            self._require_allowed(url, image)
            async with http.get(url, allow_redirects=False) as response:
                location = response.headers.get("location")
                if response.status in REDIRECTS and location:
                    url = urljoin(url, location)
                    continue
                if response.status != 200:
                    raise _not_fetched(image, f"its server answered {response.status}")
                return await _read(response, image, left, self._settings)
        raise _not_fetched(image, f"more than {self._settings.max_redirects} redirects (media.max_redirects)")

    def _require_allowed(self, url: str, image: ImagePart) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or parts.username is not None:
            raise _not_fetched(image, "only http and https without a name and password")
        if not is_allowed_host(host, self._settings.allowed_domains):
            raise BadRequest(
                f"`{image.param}`: images from {host!r} are not fetched (media.allowed_domains).",
                param=image.param,
                code="image_not_allowed",
            )
        if _is_address(host) and not self._is_public(host):  # aiohttp asks no resolver for it
            raise _NotPublic


@dataclass(slots=True)
class _FetchBudget:
    """Bytes that may still be fetched for one request."""

    size: int


async def _read(
    response: aiohttp.ClientResponse, image: ImagePart, left: _FetchBudget, settings: MediaSettings
) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        left.size -= len(part)
        if size > settings.max_image_bytes:
            raise too_large(image.param, settings)
        if left.size < 0:
            raise BadRequest(
                f"The images are larger than {settings.max_fetched_bytes} bytes together "
                "(media.max_fetched_bytes).",
                param=image.param,
                code="image_too_large",
            )
        parts.append(part)
    return b"".join(parts)


class _PublicOnly(AbstractResolver):
    """Resolves a name once; the connection goes to the very addresses that were judged."""

    def __init__(self, is_public: IsPublic) -> None:
        self._is_public = is_public

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = {str(address[0]): kind for kind, _, _, _, address in found}
        if not addresses or not all(map(self._is_public, addresses)):
            raise _NotPublic(host)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address, kind in addresses.items()
        ]

    async def close(self) -> None:
        """It keeps nothing."""


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
        return True
    return False


def _not_fetched(image: ImagePart, why: str) -> BadRequest:
    return BadRequest(
        f"`{image.param}` cannot be fetched: {why}.", param=image.param, code="image_not_fetched"
    )
