"""Forms with a file (``multipart/form-data``, RFC 7578), as clients upload them and engines take them.

They are read by ``python_multipart``, as in vLLM's own server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serve_app.errors import BadRequest

MAX_FIELDS = 64
MAX_FIELD_BYTES = 65_536
FILE = "file"


@dataclass(frozen=True, slots=True)
class Form:
    """``fields`` in their order; a name may come more than once. The file is the field ``file``."""

    boundary: bytes
    fields: tuple[tuple[str, str], ...]
    filename: str
    file_type: str
    file: bytes = field(repr=False)

    def get(self, name: str) -> str | None:
        """The last value of a field."""
        return next((value for given, value in reversed(self.fields) if given == name), None)

    def encoded(self, changed: Mapping[str, str]) -> bytes:
        """The form as a body under the same boundary, with other values of the fields in ``changed``."""
        kept = [(name, value) for name, value in self.fields if name not in changed]
        parts = [_part(_disposition(name), value.encode()) for name, value in (*kept, *changed.items())]
        head = f'{_disposition(FILE)}; filename="{_quoted(self.filename)}"\r\ncontent-type: {self.file_type}'
        parts.append(_part(head, self.file))
        edge = b"--" + self.boundary
        return b"".join(edge + b"\r\n" + part for part in parts) + edge + b"--\r\n"


def parse_form(content_type: str, body: bytes) -> Form:
    """Raises: BadRequest: it is no form, has too many fields, or no file."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _wrong("its Content-Type names no boundary", "content-type")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks(), max_size=max(1, len(body)))
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise _wrong(f"{error}") from error
    if not reader.ended:
        raise _wrong("it ends in the middle")
    if reader.file is None:
        raise BadRequest("Missing required field `file`.", param=FILE, code="missing_field")
    return Form(boundary, tuple(reader.fields), *reader.file)


class _Reader:
    """Takes the parser's calls."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str]] = []
        self.file: tuple[str, str, bytes] | None = None
        self.ended = False
        self._header = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._data: list[bytes] = []

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._name,
            "on_header_value": self._text,
            "on_header_end": self._header_end,
            "on_part_data": self._more,
            "on_part_end": self._end,
            "on_end": self._close,
        }

    def _begin(self) -> None:
        self._headers, self._data = {}, []

    def _name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _text(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _more(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def _end(self) -> None:
        options = parse_options_header(self._headers.get(b"content-disposition", b""))[1]
        name, data = options.get(b"name", b"").decode("latin-1"), b"".join(self._data)
        if name == FILE:
            kind = self._headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
            self.file = (options.get(b"filename", b"audio").decode("latin-1"), kind, data)
            return
        if len(self.fields) == MAX_FIELDS or len(data) > MAX_FIELD_BYTES:
            raise _wrong(f"at most {MAX_FIELDS} fields of {MAX_FIELD_BYTES} bytes besides `file`", name)
        try:
            self.fields.append((name, data.decode()))
        except UnicodeDecodeError:
            raise _wrong(f"`{name}` is not UTF-8", name) from None

    def _close(self) -> None:
        self.ended = True


def _wrong(why: str, param: str | None = None) -> BadRequest:
    return BadRequest(f"The form cannot be read: {why}.", param=param, code="invalid_form")


def _disposition(name: str) -> str:
    return f'content-disposition: form-data; name="{_quoted(name)}"'


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _part(head: str, content: bytes) -> bytes:
    return head.encode("latin-1", "replace") + b"\r\n\r\n" + content + b"\r\n"
