"""Values that a browser keeps for the gateways: encrypted and authenticated, so that others cannot read or
change them, and every gateway of the application opens them without any state of its own."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Generic, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

T = TypeVar("T", bound=msgspec.Struct)

NONCE_BYTES = 12
MAX_SEALED_CHARS = 3800
"""Browsers keep cookies of 4096 bytes, with their names and attributes."""


class Sealer(Generic[T]):
    """Seals values of one kind. ``secret`` is shared by the gateways of one start of one application, and
    ``purpose`` is bound into the key: a value of another kind, or of another application, does not open."""

    def __init__(self, secret: bytes, purpose: str, kind: type[T]) -> None:
        key = hmac.digest(secret, f"promptly-sealed:{purpose}".encode(), "sha256")
        self._cipher = AESGCM(key)
        self._purpose = purpose.encode()
        self._decoder = msgspec.json.Decoder(kind)

    def seal(self, value: T) -> str:
        """Raises: ValueError: it is larger than a cookie may be."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, msgspec.json.encode(value), self._purpose)
        text = urlsafe_b64encode(sealed).rstrip(b"=").decode()
        if len(text) > MAX_SEALED_CHARS:
            raise ValueError(f"it would need {len(text)} of {MAX_SEALED_CHARS} characters")
        return text

    def open(self, text: str) -> T | None:
        """``None`` for what was not sealed here, or was changed."""
        if len(text) > MAX_SEALED_CHARS or not text.isascii():
            return None
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            opened = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._purpose)
            return self._decoder.decode(opened)
        except (ValueError, InvalidTag, msgspec.MsgspecError):
            return None
