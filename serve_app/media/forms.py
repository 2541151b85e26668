"""Forms with a file (``multipart/form-data``, RFC 7578), as clients upload them and engines take them.

They are read by ``python_multipart``, as in vLLM's own server, while they arrive: the file's bytes are handed
on and not kept here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serve_app.errors import BadRequest

MAX_FIELDS = 64
MAX_FIELD_BYTES = 65_536
FILE = "file"


@dataclass(frozen=True, slots=True)
class Form:
    """All of a form but its file's bytes. ``fields`` in their order; a name may come more than once. The file
    is the field ``file``; ``digest`` is the SHA-256 of its bytes."""

    boundary: bytes
    fields: tuple[tuple[str, str], ...]
    filename: str
    file_type: str
    digest: bytes

    def get(self, name: str) -> str | None:
        """The last value of a field."""
        return next((value for given, value in reversed(self.fields) if given == name), None)

    @property
    def content(self) -> bytes:
        """The same for every form with this content, whatever its boundary is."""
        fields = repr((self.fields, self.filename, self.file_type))
        return hashlib.sha256(fields.encode() + self.digest).digest()

    def around(self, changed: Mapping[str, str]) -> tuple[bytes, bytes]:
        """What stands before and behind the file's bytes in a body under the same boundary, with other values
        of the fields in ``changed``."""
        kept = [(name, value) for name, value in self.fields if name not in changed]
        edge = b"--" + self.boundary
        parts = [
            b"%b\r\n%b\r\n\r\n%b\r\n" % (edge, _head(_disposition(name)), value.encode())
            for name, value in (*kept, *changed.items())
        ]
        head = f'{_disposition(FILE)}; filename="{_quoted(self.filename)}"\r\ncontent-type: {self.file_type}'
        parts.append(b"%b\r\n%b\r\n\r\n" % (edge, _head(head)))
        return b"".join(parts), b"\r\n%b--\r\n" % edge


class FormReader:
    """Reads one form as it arrives. ``take`` gets the file's bytes; what it is given is valid only during the
    call."""

    def __init__(self, content_type: str, take: Callable[[memoryview], None]) -> None:
        """Raises: BadRequest: the content type names no boundary."""
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise _wrong("its Content-Type names no boundary", "content-type")
        self._boundary = boundary
        self._parts = _Parts(take)
        try:
            self._parser = MultipartParser(boundary, self._parts.callbacks())
        except FormParserError as error:
            raise _wrong(f"{error}", "content-type") from error

    @property
    def held(self) -> int:
        """Bytes of the fields so far."""
        return self._parts.held

    def feed(self, data: bytes) -> None:
        """Raises: BadRequest: it is no form, or has too many fields, or more than one file."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _wrong(f"{error}") from error

    def end(self, digest: bytes) -> Form:
        """The form, whose file has this ``digest``. Raises: BadRequest: it is cut, or has no file."""
        try:
            self._parser.finalize()
        except FormParserError as error:
            raise _wrong(f"{error}") from error
        parts = self._parts
        if not parts.ended:
            raise _wrong("it ends in the middle")
        if parts.file is None:
            raise BadRequest("Missing required field `file`.", param=FILE, code="missing_field")
        return Form(self._boundary, tuple(parts.fields), *parts.file, digest)


class _Parts:
    """Takes the parser's calls."""

    def __init__(self, take: Callable[[memoryview], None]) -> None:
        self.fields: list[tuple[str, str]] = []
        self.file: tuple[str, str] | None = None
        """Its name and its type."""
        self.ended = False
        self.held = 0
        self._take = take
        self._header = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._name = ""
        self._data = bytearray()

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._text,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._more,
            "on_part_end": self._end,
            "on_end": self._close,
        }

    def _begin(self) -> None:
        self._headers, self._data = {}, bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _text(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _headers_end(self) -> None:
        options = parse_options_header(self._headers.get(b"content-disposition", b""))[1]
        self._name = options.get(b"name", b"").decode("latin-1")
        if self._name == FILE:
            if self.file is not None:
                raise _wrong("it has more than one `file`", FILE)
            kind = self._headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
            self.file = options.get(b"filename", b"audio").decode("latin-1"), kind
        elif len(self.fields) == MAX_FIELDS:
            raise self._too_much()

    def _more(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._take(memoryview(data)[start:end])
        elif len(self._data) + end - start > MAX_FIELD_BYTES:
            raise self._too_much()
        else:
            self._data += data[start:end]
            self.held += end - start

    def _too_much(self) -> BadRequest:
        return _wrong(f"at most {MAX_FIELDS} fields of {MAX_FIELD_BYTES} bytes besides `file`", self._name)

    def _end(self) -> None:
        if self._name == FILE:
            return
        try:
            self.fields.append((self._name, self._data.decode()))
        except UnicodeDecodeError:
            raise _wrong(f"`{self._name}` is not UTF-8", self._name) from None

    def _close(self) -> None:
        self.ended = True


def _wrong(why: str, param: str | None = None) -> BadRequest:
    return BadRequest(f"The form cannot be read: {why}.", param=param, code="invalid_form")


def _disposition(name: str) -> str:
    return f'content-disposition: form-data; name="{_quoted(name)}"'


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _head(text: str) -> bytes:
    return text.encode("latin-1", "replace")
