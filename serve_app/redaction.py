"""Takes secrets out of what others say: a server's errors repeat the key that it was sent now and then."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8
"""Shorter ones (``EMPTY``, ``none``) are the words that stand where no key is needed: they stay."""

SCHEME = re.compile(r"^(?:Bearer|Basic) ", re.IGNORECASE)


class Redactor:
    """Knows some secrets in the ways in which they are repeated: as they are, escaped for JSON or for a URL,
    and in base64. A secret that is cut or masked is not recognised."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets``: values of headers too; a scheme in front of a key is none of it."""
        bare = {SCHEME.sub("", secret).strip() for secret in secrets}
        written = {form for secret in bare if len(secret) >= MIN_SECRET_CHARS for form in _forms(secret)}
        self._texts = tuple(sorted(written, key=lambda form: (-len(form), form)))
        self._datas = tuple(text.encode() for text in self._texts)
        self._longest = max(map(len, self._datas), default=0)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __repr__(self) -> str:
        return f"Redactor({len(self._texts)} forms)"

    def text(self, text: str) -> str:
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text

    def data(self, data: bytes) -> bytes:
        for secret in self._datas:
            if secret in data:
                data = data.replace(secret, REDACTED.encode())
        return data

    def unfinished(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a secret that goes on in what follows."""
        if data.endswith(b"\n"):  # as nearly every piece of a stream does
            return 0
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            end = data[-length:]
            if any(secret.startswith(end) for secret in self._datas):
                return length
        return 0


class StreamRedactor:
    """Of a body that comes in pieces: what may be the beginning of a secret is kept back until more comes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on; ``b""`` for the body's end gives what was kept back."""
        if not data:
            rest, self._kept = self._kept, b""
            return rest
        data = self._redactor.data(self._kept + data)
        kept = self._redactor.unfinished(data)
        passed, self._kept = data[: len(data) - kept], data[len(data) - kept :]
        return passed


def _forms(secret: str) -> Iterable[str]:
    raw = secret.encode()
    return (secret, secret.replace("/", "\\/"), quote(secret, safe=""), b64encode(raw).decode().rstrip("="))
