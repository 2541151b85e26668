"""Checks a token of the provider: who signed it, for whom, and until when (RFC 7519, RFC 8725)."""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from serve_app.errors import Unauthorized
from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.key_set import MAX_KID_CHARS, KeySet
from serve_app.sign_in.strict_json import StrictDecoder, read_object

COMPACT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""Header, claims and signature in base64, without any sign that decoders differ about."""

JSON_BEGINS = "eyJ"
"""`{"` in base64: how the header of every token begins."""

MAX_HEADER_CHARS = 4096
TYPES = frozenset({"", "jwt", "at+jwt"})
"""Types of identity and access tokens. Other tokens of the same provider, such as `logout+jwt`, are signed by
the same keys and prove something else (RFC 8725, 3.11)."""

Claims = Mapping[str, Any]


class InvalidToken(Unauthorized):
    """The message says what is wrong, and holds nothing of the token."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The token is not valid: {why}.", code="invalid_token")

    @property
    def headers(self) -> dict[str, str]:
        return {"www-authenticate": 'Bearer error="invalid_token"'}


@dataclass(frozen=True, slots=True)
class Header:
    """``kid``: the key that the token names, if it names one."""

    alg: str
    kid: str | None


class Checker:
    """Checks signatures and claims by the settings. It has no clock and no keys of its own."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._registry = _Allowed(settings.algorithms)

    def header(self, token: str) -> Header:
        """What an unchecked token says about its signature. Raises: InvalidToken."""
        if len(token) > self._settings.max_token_bytes:
            most = self._settings.max_token_bytes
            raise InvalidToken(f"it is longer than {most} bytes (auth.oidc.max_token_bytes)")
        encoded = token.partition(".")[0]
        if COMPACT.fullmatch(token) is None or len(encoded) > MAX_HEADER_CHARS:
            raise InvalidToken("it is no signed JWT")
        try:
            found = read_object(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        except ValueError:
            raise InvalidToken("its header cannot be read") from None
        return self._header(found)

    def _header(self, found: Mapping[str, Any]) -> Header:
        alg, kid, kind = found.get("alg"), found.get("kid"), found.get("typ", "")
        if not isinstance(alg, str) or alg not in self._settings.algorithms:
            raise InvalidToken("its algorithm is not allowed (auth.oidc.algorithms)")
        if not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID_CHARS)):
            raise InvalidToken("its `kid` is no name of a key")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TYPES:
            raise InvalidToken("its `typ` is that of a token for something else")
        if "crit" in found:
            raise InvalidToken("its header has `crit`, which asks for an extension")
        return Header(alg, kid)

    def claims(
        self, token: str, header: Header, keys: KeySet, now: float, *, audiences: Collection[str] = ()
    ) -> Claims:
        """The claims of a token that is valid at ``now`` (Unix seconds). ``audiences`` take the place of
        those of the settings.

        Raises:
            InvalidToken: it is not.
        """
        key = keys.find(header.kid, header.alg)
        if key is None:
            raise InvalidToken("no key of the provider fits it")
        try:
            claims = jwt.decode(token, key, registry=self._registry, decoder_cls=StrictDecoder).claims
        except (JoseError, ValueError, RecursionError):
            raise InvalidToken("its signature or its claims cannot be trusted") from None
        self._check(claims, now, audiences or self._settings.audiences)
        return claims

    def _check(self, claims: Claims, now: float, audiences: Collection[str]) -> None:
        leeway_s = self._settings.leeway_s
        if claims.get("iss") != self._settings.issuer:
            raise InvalidToken("it is of another issuer (auth.oidc.issuer)")
        if not set(audiences).intersection(_strings(claims.get("aud"))):
            raise InvalidToken("it is for another audience (auth.oidc.audiences)")
        if _time(claims, "exp", math.nan) <= now - leeway_s:
            raise InvalidToken("it has expired")
        for name in ("nbf", "iat"):
            if _time(claims, name, -math.inf) > now + leeway_s:
                raise InvalidToken(f"it is not valid yet (`{name}`; auth.oidc.leeway_s)")

    def expires_at(self, claims: Claims) -> float:
        """Unix seconds from which on checked claims count no more."""
        return float(claims["exp"]) + self._settings.leeway_s


class _Allowed(JWSRegistry):
    """joserfc's own check of the algorithm, without its advice on which are new."""

    max_header_length = MAX_HEADER_CHARS

    def __init__(self, algorithms: Collection[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self._allowed = frozenset(algorithms)

    def get_alg(self, name: str) -> Any:
        if name not in self._allowed:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


def looks_like_token(bearer: str) -> bool:
    """Whether a bearer is a JWT rather than a key. A token is never looked up as a key, nor the reverse."""
    return bearer.startswith(JSON_BEGINS) and bearer.count(".") == 2


def _time(claims: Claims, name: str, missing: float) -> float:
    """Unix seconds. Raises: InvalidToken: it is no time; NaN as ``missing``: it must be there."""
    found = claims.get(name)
    if found is None and not math.isnan(missing):
        return missing
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e15:
        raise InvalidToken(f"its `{name}` is no time")
    return float(found)


def _strings(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
