"""The client with which commands ask a running endpoint: its URL, the secret, calls, pages, what is printed.

A secret comes from the environment or from a file, never from the command line, where every user of the
machine can read it and the shell keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

from serve_app.file_errors import said_of
from serve_app.request.admin_token import FILE_VARIABLE, TOKEN_VARIABLE

DEFAULT_URL = "http://127.0.0.1:8000"
ADMIN_KEY = "PROMPTLY_ADMIN_KEY"
TIMEOUT_S = 120.0
"""A model that is scaled to zero starts first."""

SURELY_SENT_BYTES = 65_536
"""A body that the buffers of a connection hold."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class CannotConnect(Exception):
    """The endpoint cannot be reached, or does not answer as the command needs it."""


class TooLarge(CannotConnect):
    """The endpoint takes no body of this size."""


class SameHost(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another host, nor out of TLS: the secret is for the host that was named."""

    def redirect_request(self, *request: Any) -> urllib.request.Request | None:
        asked, _, _, _, _, target = request
        before, after = urlsplit(asked.full_url), urlsplit(target)
        if before.hostname != after.hostname or (before.scheme, after.scheme) == ("https", "http"):
            return None  # the answer is the redirect itself, which is an error
        return super().redirect_request(*request)


class Administrator:
    """Calls of one ``/admin`` path, with the secret of the person who runs the command."""

    def __init__(self, options: argparse.Namespace, path: str) -> None:
        """Raises: CannotConnect: there is no secret."""
        self.url = base_url(options.endpoint) + path
        self._headers = {"authorization": f"Bearer {secret(options.key_file)}"}

    def asked(
        self, under: str = "", body: Mapping[str, Any] | None = None, method: str | None = None
    ) -> dict[str, Any]:
        """``under`` follows the path. Raises: CannotConnect."""
        return asked(self.url + under, body, self._headers, method)

    def text(self, query: Mapping[str, Any]) -> str:
        """Raises: CannotConnect."""
        return self.page(query)[0].decode()

    def page(self, query: Mapping[str, Any]) -> tuple[bytes, str | None]:
        """And what ``after`` of the next page is. Raises: CannotConnect."""
        body, headers = _received(f"{self.url}?{urlencode(query)}", None, self._headers, None)
        return body, headers.get("x-next")

    def sent(self, lines: bytes) -> dict[str, Any]:
        """The answer to JSON lines. Raises: TooLarge, CannotConnect."""
        headers = {**self._headers, "content-type": "application/x-ndjson"}
        return _read(self.url, _received(self.url, lines, headers, "POST")[0])

    def all(self, name: str, query: Mapping[str, Any]) -> dict[str, Any]:
        """The lists ``name`` of all pages as one. Raises: CannotConnect."""
        found: list[Any] = []
        after: dict[str, Any] = {}
        while True:
            page = self.asked(f"?{urlencode({**query, **after})}")
            found += page[name]
            if page["next"] is None:
                return {name: found}
            after = {"after": page["next"]}


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """The arguments that every command of administrators has."""
    parser.add_argument(
        "--endpoint", "--url", default=DEFAULT_URL, metavar="URL", help=f"default: {DEFAULT_URL}"
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help=f"holds the key; default: ${ADMIN_KEY}, ${TOKEN_VARIABLE} or the file ${FILE_VARIABLE}",
    )
    parser.add_argument("--key-secret", type=no_secret(ADMIN_KEY), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the endpoint's own answer")


def shown(
    options: argparse.Namespace,
    done: Callable[[argparse.Namespace], dict[str, Any]],
    lines: Callable[[dict[str, Any]], Iterable[str]],
) -> int:
    """Do what was asked for and print it; returns the exit status."""
    try:
        answer = done(options)
    except (CannotConnect, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2) if options.json else "\n".join(lines(answer)))
    return 0


def secret(file: str | None) -> str:
    """Raises: CannotConnect: there is none, or its file cannot be read."""
    found = known_secret(file)
    if not found:
        raise CannotConnect(
            f"Set {ADMIN_KEY} or {TOKEN_VARIABLE}, name a file with --key-file, "
            "or `source` the file `env` of the start."
        )
    return found


def known_secret(file: str | None = None) -> str | None:
    """The secret from ``file``, else from the environment, else from the file that the environment names.
    Raises: CannotConnect: the file cannot be read."""
    environment = {} if file else os.environ
    found = environment.get(ADMIN_KEY) or environment.get(TOKEN_VARIABLE)
    path = file or environment.get(FILE_VARIABLE)
    if not found and path:
        return key_in(path)
    return (found or "").strip() or None


def key_in(path: str) -> str | None:
    """The key that a file holds; ``None`` if it is empty. Raises: CannotConnect: it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotConnect(f"The key cannot be read from {path!r}: {said_of(error)}") from None


def base_url(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def asked(
    url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str], method: str | None = None
) -> dict[str, Any]:
    """The JSON at ``url``; POST with a body, unless ``method`` says another. Raises: CannotConnect."""
    data = None if body is None else json.dumps(body).encode()
    return _read(url, _received(url, data, headers, method)[0])


def _read(url: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise CannotConnect(f"{url}: no answer: {error}") from error
    if not isinstance(found, dict):
        raise CannotConnect(f"{url} is no such API: {str(found)[:200]}")
    return found


def _received(
    url: str, data: bytes | None, headers: Mapping[str, str], method: str | None
) -> tuple[bytes, Message]:
    """The body, and its headers. Raises: TooLarge, CannotConnect."""
    host = urlsplit(url).hostname
    if urlsplit(url).scheme not in ("http", "https") or host is None:
        raise CannotConnect(f"{url!r}: expected http://host:port or https://host")
    proxies: dict[str, str] | None = {} if host in LOOPBACK else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), SameHost)
    given = {"content-type": "application/json", **headers}
    request = urllib.request.Request(url, data, given, method=method)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            return bytes(response.read()), response.headers
    except urllib.error.HTTPError as error:
        failed = TooLarge if error.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else CannotConnect
        raise failed(f"{url}: {error.code}: {_message(error.read())}") from error
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        failed = TooLarge if _was_cut(reason, data) else CannotConnect
        raise failed(f"{url}: no answer: {reason}") from error


def _was_cut(reason: object, data: bytes | None) -> bool:
    """Whether the endpoint seems to have refused a body before it had all: its answer is lost then."""
    is_long = data is not None and len(data) > SURELY_SENT_BYTES
    return is_long and isinstance(reason, BrokenPipeError | ConnectionResetError)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def no_secret(variable: str) -> Callable[[str], NoReturn]:
    """Refuses an option that took a secret once: the error names ``variable`` instead."""

    def refused(_: str) -> NoReturn:
        raise argparse.ArgumentTypeError(
            f"a secret on the command line can be read by others: set {variable}, or use --key-file FILE"
        )

    return refused
