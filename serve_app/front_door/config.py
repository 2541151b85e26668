"""Ray Serve's HAProxy config, changed line by line.

Serve 2.60 renders the config from its own template and has no settings for the changes below. Each change
names the line that it replaces, and a missing line is an error, so that no protection is lost silently
(check this file when Ray moves).

- ``option splice-request`` is removed: with it HAProxy 2.8 does not notice that the client of a non-streamed
  request has disconnected, if head and body came in two writes (as httpx sends them). The engine generated to
  the end, and HAProxy spun on such connections (a third of a core for 14 of them; none without the option).
- ``timeout http-request`` closes connections with half-sent headers. It covers the headers only; the gateway
  times bodies, because it knows their tenant.
- Connections per client address are limited.
- Statistics and metrics listen on loopback, and only the owner may use the admin socket.
- HAProxy's own errors are JSON in OpenAI's format, each with its own status. Before there is an application
  it is a 503 that clients retry; Serve's template has a 404.
- TLS for clients, if there is a certificate.
- Gateways are told the client's address.
- A gateway of the same node is reached through its Unix socket, where it has one.
- There are no more threads than CPUs (Serve starts four): more wake each other without doing more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.settings.proxy import ProxySettings

LOOPBACK = "127.0.0.1"
TLS_OPTIONS = "ssl-min-ver TLSv1.2 no-tls-tickets"
LOCAL_SERVER = (
    r"^(?P<server> *server \S*?(?P<id>[^\s-]+)) (?:127\.0\.0\.1|\[?::1\]?|localhost):\d+ check\b(?P<rest>.*)$"
)
APPLICATION = "\n    use_backend "
"""How the line begins that leads to an application's gateways."""

SOURCE_TABLE = "type ipv6 size 100k expire 60s store conn_cur"
"""The table also holds IPv4 addresses. 100,000 addresses take about 10 MB; memory is used as they arrive."""

CHUNKED_UPGRADE = "{ req.hdr(upgrade) -m found } { req.hdr(transfer-encoding) -m found }"
NO_CHUNKED_UPGRADE = f"\n    http-request deny deny_status 400 if {CHUNKED_UPGRADE}"
"""The gateway's HTTP server takes such a request for a WebSocket whose body never ends, and never answers."""

NO_HOST = "\n    http-request deny deny_status 400 if { req.ver 1.1 } !{ req.hdr(host) -m found }"
"""RFC 9112, section 3.2."""


CLIENT_ADDRESS = "x-promptly-client"
"""HAProxy sets it on every request, whatever the client sent: a secret of the start and the client's address.
The secret proves that HAProxy wrote it, for a client may reach a gateway by another way."""


class TemplateChangedError(RuntimeError):
    """Serve's config lacks a line that this module changes."""


@dataclass(frozen=True)
class ProxyFiles:
    """Files that the config names: error pages by status, the certificate with its key.

    ``owners_door``: a Unix socket without TLS for the proxy's own user; created if clients need TLS.
    """

    errors: Mapping[int, Path]
    owners_door: Path
    certificate: Path | None = None
    client_ca: Path | None = None
    secret: str | None = None
    """The secret that makes gateways believe what HAProxy says of a client's address."""
    gateways: Mapping[str, Path] = field(default_factory=dict)
    """The Unix sockets of gateways on this node, by the id of their Serve replica."""


def harden(text: str, settings: ProxySettings, files: ProxyFiles, cpus: int) -> str:
    """The config that HAProxy runs with on ``cpus`` CPUs, made from the one that Serve has rendered.

    Raises:
        TemplateChangedError: a line that must change is missing.
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
        rf"\1{_tls(files)}{_per_source(settings)}{NO_CHUNKED_UPGRADE}{NO_HOST}{_client(files)}",
    )
    text = _replace(text, r"^( *nbthread) (\d+)$", lambda found: f"{found[1]} {min(int(found[2]), cpus)}")
    text = _by_socket(text, files.gateways)
    return _replace(text, r"^(backend default_backend\n).*\n", rf"\1    {_elsewhere(text, files)}\n")


def _replace(text: str, pattern: str, new: str | Callable[[re.Match[str]], str]) -> str:
    changed, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    if count != 1:
        raise TemplateChangedError(f"Serve's HAProxy config matches {pattern!r} {count} times, expected once")
    return changed


def _on_loopback(text: str, section: str) -> str:
    return _replace(text, rf"^({section}\n *bind )\*?:(\d+)$", rf"\g<1>{LOOPBACK}:\2")


def _by_socket(text: str, gateways: Mapping[str, Path]) -> str:
    """Serve gives the loopback address to replicas of HAProxy's own node alone, and ends a server's name with
    the replica's id. Three connections that fail take no server out (``observe``): a queue that is full fails
    at once, where TCP would wait. The checks do, and a request that fails goes to another server."""

    def line(found: re.Match[str]) -> str:
        path = gateways.get(found["id"])
        if path is None or "proto h2" in found["rest"]:  # the socket speaks HTTP/1
            return found[0]
        return f"{found['server']} unix@{path} check"

    return re.sub(LOCAL_SERVER, line, text, flags=re.MULTILINE)


def _elsewhere(text: str, files: ProxyFiles) -> str:
    """What a path without an application gets. While there is none at all, one is being started or replaced,
    and clients try again."""
    if APPLICATION not in text:
        return "http-request return status 503 default-errorfiles"
    return f"http-request return status 404 content-type application/json file {files.errors[404]}"


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


def _client(files: ProxyFiles) -> str:
    """The client's address for gateways, instead of what the client itself claims."""
    if files.secret is None:
        return f"\n    http-request del-header {CLIENT_ADDRESS}"
    return f'\n    http-request set-header {CLIENT_ADDRESS} "{files.secret} %[src]"'


def _per_source(settings: ProxySettings) -> str:
    if settings.max_connections_per_source == 0:
        return ""
    lines = [
        f"stick-table {SOURCE_TABLE}",
        "tcp-request connection track-sc0 src",
        f"tcp-request connection reject if {{ sc0_conn_cur gt {settings.max_connections_per_source} }}",
    ]
    return "".join(f"\n    {line}" for line in lines)
