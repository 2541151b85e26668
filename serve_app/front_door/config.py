"""Ray Serve's HAProxy config, changed line by line.

Serve 2.60 renders the config from a template of its own and has no settings for what follows. Each change
names the line that it changes; one that is not there any more is an error, not a hole (watch this file when
Ray moves).

- ``option splice-request`` goes: with it HAProxy 2.8 does not notice that the client of a non-streamed
  request left, where head and body came in two writes (as httpx sends them). The engine generated to the end,
  and HAProxy spun on such connections (a third of a core for 14 of them; none without the option).
- ``timeout http-request``: half-sent headers hold a connection no longer. It ends with the headers; bodies
  are the gateway's to time, which knows their tenant.
- A bound of connections per address.
- Statistics and metrics listen on loopback, and the admin socket is the owner's alone.
- Errors of HAProxy's own are JSON in OpenAI's shape, each with its own status.
- TLS towards clients, if there is a certificate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serve_app.settings.proxy import ProxySettings

LOOPBACK = "127.0.0.1"
TLS_OPTIONS = "ssl-min-ver TLSv1.2 no-tls-tickets"
SOURCE_TABLE = "type ipv6 size 100k expire 60s store conn_cur"
"""HAProxy keeps IPv4 addresses in it too. 100,000 addresses take about 10 MB, when they come."""

CHUNKED_UPGRADE = "{ req.hdr(upgrade) -m found } { req.hdr(transfer-encoding) -m found }"
NO_CHUNKED_UPGRADE = f"\n    http-request deny deny_status 400 if {CHUNKED_UPGRADE}"
"""The server behind takes such a request for a WebSocket whose body never ends, and does not answer."""


class TemplateChangedError(RuntimeError):
    """Serve's config has no line that this module knows how to change."""


@dataclass(frozen=True)
class ProxyFiles:
    """Where the proxy finds what the config names: error pages by status, the certificate with its key.

    ``owners_door``: a unix socket without TLS, for the proxy's own user; made where others need TLS.
    """

    errors: Mapping[int, Path]
    owners_door: Path
    certificate: Path | None = None
    client_ca: Path | None = None


def harden(text: str, settings: ProxySettings, files: ProxyFiles) -> str:
    """The config that HAProxy runs with, from the one that Serve has rendered.

    Raises:
        TemplateChangedError: a line that has to change is not there.
    """
    text = _replace(text, r"^( *)option splice-request\n", "")
    text = _replace(text, r"^( *stats socket .*) mode 666 ", r"\1 mode 600 ")
    text = _replace(text, r"^( *errorfile \d+ .*\n)+", _error_lines(files))
    text = _replace(
        text, r"^( *option httplog)$", rf"\1\n    timeout http-request {settings.header_timeout_s}s"
    )
    text = _on_loopback(text, "frontend prometheus")
    text = _on_loopback(text, "listen stats")
    text = _replace(
        text,
        r"^(frontend http_frontend\n *bind \S+)$",
        rf"\1{_tls(files)}{_per_source(settings)}{NO_CHUNKED_UPGRADE}",
    )
    return _replace(
        text,
        r"^(backend default_backend\n).*\n",
        rf"\1    http-request return status 404 content-type application/json file {files.errors[404]}\n",
    )


def _replace(text: str, pattern: str, new: str) -> str:
    changed, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    if count != 1:
        raise TemplateChangedError(f"Serve's HAProxy config matches {pattern!r} {count} times, expected once")
    return changed


def _on_loopback(text: str, section: str) -> str:
    return _replace(text, rf"^({section}\n *bind )\*?:(\d+)$", rf"\g<1>{LOOPBACK}:\2")


def _error_lines(files: ProxyFiles) -> str:
    return "".join(
        f"    errorfile {status} {path}\n" for status, path in files.errors.items() if status != 404
    )


def _tls(files: ProxyFiles) -> str:
    if files.certificate is None:
        return ""
    clients = "" if files.client_ca is None else f" ca-file {files.client_ca} verify required"
    door = f"\n    bind unix@{files.owners_door} mode 600"
    return f" ssl crt {files.certificate} alpn http/1.1 {TLS_OPTIONS}{clients}{door}"


def _per_source(settings: ProxySettings) -> str:
    if settings.max_connections_per_source == 0:
        return ""
    lines = [
        f"stick-table {SOURCE_TABLE}",
        "tcp-request connection track-sc0 src",
        f"tcp-request connection reject if {{ sc0_conn_cur gt {settings.max_connections_per_source} }}",
    ]
    return "".join(f"\n    {line}" for line in lines)
