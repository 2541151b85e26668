"""Checks which web pages may send requests, by the headers `Host`, `Origin` and `Sec-Fetch-Site`.

A browser lets any page send requests to the user's own machine. Without keys, two checks refuse such pages.
`Host` must be one of our names, which stops an attacker's DNS name that points at this machine (DNS
rebinding). `Origin` and `Sec-Fetch-Site`, which no script can change, must not name another origin. With keys
such a page can do nothing: browsers never add `Authorization` by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address

from serve_app.errors import OriginNotAllowed, PackedBody, UnknownHost, UnsupportedMediaType
from serve_app.settings import KeySettings, Settings

HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s,:/@\[\]]+)(:\d*)?", re.IGNORECASE)
FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""`same-site` too: to a browser, all ports of one machine are the same site."""

KNOWN_HOSTS = 64
"""Accepted values of `Host` that are remembered. Clients choose them, so there is a bound."""

EVERY = "*"
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
PREFLIGHT_KEPT_S = 600
CORS_METHODS = "GET, HEAD, POST, DELETE"


class Door:
    """The checks, built once from the settings. Header names are in lower case."""

    def __init__(self, settings: Settings) -> None:
        gateway = settings.gateway
        self._has_keys = isinstance(settings.auth, KeySettings)
        self._hosts = tuple(name.lower() for name in gateway.allowed_hosts)
        self._any_host = EVERY in self._hosts or (settings.auth != "loopback" and not self._hosts)
        self._origins = frozenset(gateway.cors_origins)
        self._known_hosts: set[str] = set()

    def admit(self, method: str, headers: Mapping[str, str]) -> None:
        """Raises:
        UnknownHost: `Host` is not one of our names.
        OriginNotAllowed: keys are off, and a page of another origin sent the request.
        """
        host = headers.get("host")
        if host is not None and not self._any_host and host not in self._known_hosts:
            if not self._is_ours(host):
                raise UnknownHost(host)
            if len(self._known_hosts) < KNOWN_HOSTS:
                self._known_hosts.add(host)
        if not self._has_keys:
            self._refuse_foreign_page(method, headers)

    def _is_ours(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        if found is None:
            return False
        name = found["name"].lower().removesuffix(".")
        return is_loopback(name) or any(_fits(name, allowed) for allowed in self._hosts)

    def _refuse_foreign_page(self, method: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None:
            if not self._is_allowed(origin) and not _is_own(origin, headers.get("host", "")):
                raise OriginNotAllowed(origin)
        elif headers.get("sec-fetch-site") in FOREIGN_SITES and not self._is_harmless(method, headers):
            raise OriginNotAllowed(headers["sec-fetch-site"])

    def _is_harmless(self, method: str, headers: Mapping[str, str]) -> bool:
        """A link that the user follows: the page with the link cannot read the answer."""
        follows = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return EVERY in self._origins or (method in {"GET", "HEAD"} and follows)

    def _is_allowed(self, origin: str) -> bool:
        return EVERY in self._origins or origin in self._origins

    # ---- CORS: the response headers that give a page its rights ---------------------------------------

    def response_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The CORS headers of every response, errors and streams included; none while no origin is allowed.

        Never ``access-control-allow-credentials``: keys travel in a header that the page sets itself.
        """
        if not self._origins:
            return {}
        if EVERY in self._origins:
            return {"access-control-allow-origin": EVERY, "access-control-expose-headers": EVERY}
        origin = headers.get("origin", "")
        if origin not in self._origins:
            return {"vary": "origin"}
        return {
            "vary": "origin",
            "access-control-allow-origin": origin,
            "access-control-expose-headers": EVERY,
        }

    def is_preflight(self, method: str, headers: Mapping[str, str]) -> bool:
        """A CORS preflight: the browser asks whether an allowed page may send its request."""
        return (
            method == "OPTIONS"
            and "access-control-request-method" in headers
            and self._is_allowed(headers.get("origin", ""))
        )

    def preflight_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Allows all headers that the page asks for: its origin is trusted, and the code that reads a header
        checks it. ``*`` would not include `authorization`."""
        asked = headers.get("access-control-request-headers", "")
        allowed = {
            "access-control-allow-methods": CORS_METHODS,
            "access-control-max-age": str(PREFLIGHT_KEPT_S),
            "vary": "origin, access-control-request-method, access-control-request-headers",
        }
        if HEADER_NAMES.fullmatch(asked.strip()):
            allowed["access-control-allow-headers"] = asked.strip()
        if headers.get("access-control-request-private-network") == "true":
            allowed["access-control-allow-private-network"] = "true"
        return allowed


def require_media_type(content_type: str | None, accepted: tuple[str, ...]) -> None:
    """A form on another page can send `text/plain`, or no type at all, without a preflight.

    Raises:
        UnsupportedMediaType: the body's type is not one of ``accepted``.
    """
    given = (content_type or "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise UnsupportedMediaType(content_type, accepted)


def refuse_packed(content_encoding: str | None) -> None:
    """Raises: PackedBody: the body is compressed."""
    encoding = (content_encoding or "").strip()
    if encoding.lower() not in ("", "identity"):
        raise PackedBody(encoding)


def is_loopback(name: str) -> bool:
    """Whether it is `localhost`, a name below it (browsers never resolve those by DNS), or a loopback
    address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _fits(name: str, allowed: str) -> bool:
    """`*.example.com` matches every name below `example.com`."""
    return name.endswith(allowed[1:]) if allowed.startswith("*.") else name == allowed


def _is_own(origin: str, host: str) -> bool:
    """Whether the page was loaded from the address that the request goes to."""
    _, separator, address = origin.partition("://")
    return bool(separator) and address.lower() == host.lower()
