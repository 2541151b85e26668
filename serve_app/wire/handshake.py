"""How both ends of a private connection prove that they know a secret, without ever sending it.

    caller    → greeting, its nonce
    listener  → its nonce, proof that it knows the secret
    caller    → proof that it knows the secret, and at once its first request

A proof is an HMAC-SHA256 under the secret over the prover's role, both nonces and the listener's address. So
a proof is valid for one connection, one end and one listener. An attacker on a port that a listener used
before gets only a random number, and a proof forwarded to a listener elsewhere is refused.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Literal

GREETING = b"PROMPTLY/1 "
"""No HTTP request begins with this."""

NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(GREETING) + NONCE_BYTES
REPLY_BYTES = NONCE_BYTES + PROOF_BYTES


class NotProven(Exception):
    """The other end does not know the secret."""


class Handshake:
    """The handshake of one connection, at either end. ``address`` is the listener's, as callers know it."""

    def __init__(self, secret: str, address: str) -> None:
        self._secret = secret.encode()
        self._address = address.encode()
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._nonces = b""

    def hello(self) -> bytes:
        """The caller's first bytes."""
        return GREETING + self._nonce

    def reply(self, hello: bytes) -> bytes:
        """The listener's bytes. Raises: NotProven: the other end is not one of our callers."""
        if len(hello) != HELLO_BYTES or not hello.startswith(GREETING):
            raise NotProven("no greeting")
        self._nonces = hello.removeprefix(GREETING) + self._nonce
        return self._nonce + self._proof("listener")

    def answer(self, reply: bytes) -> bytes:
        """The caller's proof, once the listener's proof is checked. Raises: NotProven: that one is wrong."""
        self._nonces = self._nonce + reply[:NONCE_BYTES]
        if not hmac.compare_digest(reply[NONCE_BYTES:], self._proof("listener")):
            raise NotProven("the listener there does not know the secret")
        return self._proof("caller")

    def check(self, proof: bytes) -> None:
        """Raises: NotProven: the caller does not know the secret."""
        if not self._nonces or not hmac.compare_digest(proof, self._proof("caller")):
            raise NotProven("the caller does not know the secret")

    def _proof(self, who: Literal["caller", "listener"]) -> bytes:
        return hmac.digest(self._secret, b"\0".join((who.encode(), self._address, self._nonces)), "sha256")
