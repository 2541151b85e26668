"""One response as it arrives: its head, its body, and when each chunk came."""

from __future__ import annotations

import re

HEAD_LIMIT = 1 << 16

# Quotes inside JSON strings are escaped, so none of these can be part of a text.
TEXT = re.compile(rb'"(?:content|text)": ?"(?!")')
ERROR = b'data: {"error"'
DONE = b"data: [DONE]"
COMPLETION_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')


class _Chunked:
    """A chunked body."""

    def __init__(self) -> None:
        self.complete = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The payload of the complete HTTP chunks.

        Raises:
            ValueError: this is not a chunked body.
        """
        data = self._rest + data if self._rest else data
        start, payload = 0, b""
        while (line_end := data.find(b"\r\n", start)) >= 0:
            size = int(data[start:line_end].partition(b";")[0], 16)
            if size == 0:
                self.complete = data.find(b"\r\n\r\n", line_end) >= 0
                break
            end = line_end + 2 + size
            if len(data) < end + 2:
                break
            payload += data[line_end + 2 : end]
            start = end + 2
        self._rest = data[start:]
        return payload


class _Sized:
    """A body with a ``content-length``."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0

    def feed(self, data: bytes) -> bytes:
        self._left -= len(data)
        self.complete = self._left <= 0
        return data


class Response:
    """One response as it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.first_at: float | None = None
        self.chunks_at: list[float] = []
        self._head = b""
        self._body: _Chunked | _Sized | None = None

    @property
    def complete(self) -> bool:
        return self._body is not None and self._body.complete

    @property
    def keeps_alive(self) -> bool:
        return self.complete and self.headers.get("connection", "").lower() != "close"

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def feed(self, data: bytes, now: float) -> None:
        """Raises: ValueError: this is not HTTP. KeyError: the body has no length; no server here sends such a
        body."""
        if self._body is None:
            data = self._take_head(data)
            if self._body is None:
                return
        if data and (payload := self._body.feed(data)):
            if self.first_at is None:
                self.first_at = now
            if TEXT.search(payload):
                self.chunks_at.append(now)
            self.pieces.append(payload)

    def _take_head(self, data: bytes) -> bytes:
        """The bytes after the head, if the head is complete."""
        self._head += data
        if not self._head.startswith(b"HTTP/1.1 "[: len(self._head)]) or len(self._head) > HEAD_LIMIT:
            raise ValueError("no HTTP")
        head, blank, rest = self._head.partition(b"\r\n\r\n")
        if not blank:
            return b""
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        if self.headers.get("transfer-encoding") == "chunked":
            self._body = _Chunked()
        else:
            self._body = _Sized(int(self.headers["content-length"]))
        return rest


def count_tokens(response: Response, body: bytes) -> int:
    if response.is_stream:
        return sum(1 for _ in TEXT.finditer(body))
    found = COMPLETION_TOKENS.search(body)
    return int(found[1]) if found else 0


def judge(response: Response) -> str | None:
    """The error of a response that has ended, whole or not."""
    if not response.complete:
        return "cut"
    if response.status != 200:
        return f"status {response.status}"
    body = b"".join(response.pieces)
    if response.is_stream and ERROR in body:
        return "error event"
    return "no [DONE]" if response.is_stream and DONE not in body else None
