"""Removes secrets from upstreams' texts: a server's error message sometimes repeats the key it was sent."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8
"""Shorter values (``EMPTY``, ``none``) are placeholders where no key is needed; they are not removed."""

SCHEME = re.compile(r"^(?:Bearer|Basic) ", re.IGNORECASE)


class Redactor:
    """Recognises secrets in the forms in which they are repeated: plain, escaped for JSON or for a URL, and
    in base64. A secret that is cut or masked is not recognised."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets`` may be header values; an authentication scheme in front of a key is not part of it."""
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
        """How many of the last bytes may be the beginning of a secret that continues in the next piece."""
        if data.endswith(b"\n"):  # true for nearly every piece of a stream
            return 0
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            end = data[-length:]
            if any(secret.startswith(end) for secret in self._datas):
                return length
        return 0


class StreamRedactor:
    """Redacts a body that arrives in pieces: a possible beginning of a secret is held back until more
    arrives."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that can be passed on; ``b""`` marks the body's end and returns what was held back."""
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
