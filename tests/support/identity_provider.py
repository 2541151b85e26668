"""Providers of identities for tests: one that says what a test wants, and a real one (oidc-provider-mock, on
authlib) in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from support.gateway import serving

ISSUER = "https://login.example.com"
AUDIENCE = "promptly"
START_S = 60.0
KEYS: Mapping[str, Key] = {
    "r": RSAKey.generate_key(2048, {"kid": "r"}),
    "e": ECKey.generate_key("P-256", {"kid": "e"}),
    "o": OKPKey.generate_key("Ed25519", {"kid": "o"}),
}
ALGORITHMS = {"r": "RS256", "e": "ES256", "o": "Ed25519"}


class _All(JWSRegistry):
    """Signs with whatever a test asks for."""

    max_header_length = 1 << 20
    max_payload_length = 1 << 20

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


def claims(issuer: str = ISSUER, **changed: Any) -> dict[str, Any]:
    """Of a token that is valid now; ``None`` leaves one out."""
    now = time.time()
    given = {"iss": issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, "team": "maths"}
    return {name: value for name, value in (given | changed).items() if value is not None}


def sign(payload: Mapping[str, Any], kid: str | None = "e", *, key: Key | None = None, **header: Any) -> str:
    signer = KEYS[kid or "e"] if key is None else key
    named = {} if kid is None else {"kid": kid}
    given = {"alg": ALGORITHMS.get(kid or "e", "ES256"), **named, **header}
    return jwt.encode(given, dict(payload), signer, registry=_All(strict_check_header=False))


def token(issuer: str = ISSUER, kid: str | None = "e", **changed: Any) -> str:
    return sign(claims(issuer, **changed), kid)


def jwks(*kids: str, extra: list[dict[str, Any]] | None = None) -> bytes:
    keys = [KEYS[kid].as_dict(private=False) for kid in kids or KEYS]
    return json.dumps({"keys": [*keys, *(extra or [])]}).encode()


def as_hmac_key(kid: str) -> OctKey:
    """The bytes of a public key as the secret of an HMAC: the classical confusion."""
    return OctKey(KEYS[kid].as_pem(private=False), None)


@dataclass
class ScriptedProvider:
    """``answers``: status, headers and body by path; ``slow_s``: how long each takes. ``asked`` counts."""

    url: str = ""
    answers: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    slow_s: float = 0.0

    def gives(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, headers, body)

    def configured(self, **changed: Any) -> None:
        """It has a configuration, and all of ``KEYS``."""
        given = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }
        self.gives("/.well-known/openid-configuration", json.dumps(given | changed).encode())
        self.gives("/keys", jwks())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked[scope["path"]] += 1
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        status, headers, body = self.answers.get(scope["path"], (404, {}, b""))
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def scripted_provider() -> AsyncIterator[ScriptedProvider]:
    provider = ScriptedProvider()
    async with serving(provider) as url:
        provider.url = url
        provider.configured()
        yield provider


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def real_provider(**users: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a provider that knows these users, by their `sub`, with more claims of each."""
    port = free_port()
    known = [argument for sub, more in users.items() for argument in ("--user-claims", _user(sub, more))]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), *known],
        env=os.environ | {"AUTHLIB_INSECURE_TRANSPORT": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_there(f"http://127.0.0.1:{port}/.well-known/openid-configuration", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _user(sub: str, more: Mapping[str, Any]) -> str:
    return json.dumps({"sub": sub, **more})


def _until_there(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, "the provider has ended"
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise TimeoutError(url)
