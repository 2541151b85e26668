"""``/`` and ``/console``: the console's page and its files. They hold no secrets and need no key; what the
page shows it asks for at ``/v1`` and ``/admin``, with the key that its user typed."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from deployments.gateway.request.exchange import Exchange, Handler
from serve_app import console
from serve_app.errors import NotFound

FOLDER = Path(__file__).parents[1] / "console_files"
HTML = "text/html; charset=utf-8"
ROOT_MARK = "{{root}}"
"""In the page: the route prefix of the application."""

SIGN_IN_MARK = "{{sign-in}}"
"""In the page: `yes` where people sign in at a provider."""

SOURCE_MAP = b"//# sourceMappingURL="
"""Vendored files name maps that are not served."""


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent; ``packed`` is gzip."""

    kind: str
    body: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, kind: str, body: bytes) -> File:
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(kind, body, gzip.compress(body, 9, mtime=0), tag)


class Console:
    """Reads and compresses its files at the first request for one."""

    def __init__(self, version: str, *, enabled: bool, signs_in: bool = False, folder: Path = FOLDER) -> None:
        self._version = version
        self._enabled = enabled
        self._signs_in = signs_in
        self._folder = folder
        self._loading: asyncio.Task[Mapping[str, File]] | None = None
        self._pages: dict[str, File] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by the names that the table of routes uses."""
        return {
            "root": self.root,
            "console": self.page,
            "console_file": self.file,
        }

    async def root(self, exchange: Exchange) -> None:
        """The console for a browser; for a program, where it finds what."""
        exchange.response_headers["vary"] = "accept, accept-encoding"
        if self._enabled and console.wants_page(exchange.headers.get("accept")):
            await self.page(exchange)
            return
        found = {"name": "Promptly", "version": self._version, "api": "/v1", "docs": "/docs"}
        console_path = {"console": "/console"} if self._enabled else {}
        await exchange.respond_json(found | console_path)

    async def page(self, exchange: Exchange) -> None:
        """Raises: NotFound: the console is turned off."""
        self._require_enabled()
        page = self._pages.get(exchange.root_path)
        if page is None:
            page = self._pages[exchange.root_path] = await asyncio.to_thread(self._page, exchange.root_path)
        await _send(exchange, page, console.PAGE_HEADERS)

    async def file(self, exchange: Exchange) -> None:
        """Raises: NotFound: there is no such file, or the console is turned off."""
        self._require_enabled()
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            files = await asyncio.shield(self._loading)
        except OSError:  # no file descriptor was free: the next request tries again
            self._loading = None
            raise
        file = files.get(exchange.path.rpartition("/")[2])
        if file is None:
            raise NotFound(f"No such path: {exchange.path}.", code="not_found")
        await _send(exchange, file, console.HEADERS)

    def _require_enabled(self) -> None:
        if not self._enabled:
            raise NotFound("The console is turned off (gateway.console).", code="console_off")

    def _page(self, root_path: str) -> File:
        text = (self._folder / console.PAGE).read_text(encoding="utf-8")
        text = text.replace(SIGN_IN_MARK, "yes" if self._signs_in else "no")
        return File.of(HTML, text.replace(ROOT_MARK, escape(root_path)).encode())

    def _load(self) -> Mapping[str, File]:
        return {
            name: File.of(kind, b"\n".join(self._read(part) for part in parts))
            for name, (kind, parts) in console.FILES.items()
        }

    def _read(self, part: str) -> bytes:
        lines = (self._folder / part).read_bytes().splitlines()
        return b"\n".join(line for line in lines if not line.startswith(SOURCE_MAP))


async def _send(exchange: Exchange, file: File, headers: Mapping[str, str]) -> None:
    exchange.response_headers.setdefault("vary", "accept-encoding")
    if file.tag in exchange.headers.get("if-none-match", ""):
        await exchange.start(304, file.kind, {**headers, "etag": file.tag})
        await exchange.write(b"", more=False)
        return
    packs = console.takes_gzip(exchange.headers.get("accept-encoding"))
    encoding = {"content-encoding": "gzip"} if packs else {}
    body = file.packed if packs else file.body
    await exchange.respond(200, body, file.kind, {**headers, **encoding, "etag": file.tag})
