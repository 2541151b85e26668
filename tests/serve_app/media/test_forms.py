"""Forms with a file."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.media.forms import MAX_FIELDS, parse_form

TYPE = "multipart/form-data; boundary=edge"


def form(*parts: str, end: str = "--edge--\r\n") -> bytes:
    return ("".join(f"--edge\r\n{part}\r\n" for part in parts) + end).encode("latin-1")


def value(name: str, text: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'


FILE = (
    'Content-Disposition: form-data; name="file"; filename="a b.wav"\r\n'
    "Content-Type: audio/wav\r\n\r\nRI\0\xffFF\r\n--x"
)


def test_it_is_read_and_written_again_with_another_model() -> None:
    found = parse_form(TYPE, form(value("model", "mine"), FILE, value("language", "de")))
    assert (found.get("model"), found.get("language"), found.get("prompt")) == ("mine", "de", None)
    assert (found.filename, found.file_type, found.file) == ("a b.wav", "audio/wav", b"RI\0\xffFF\r\n--x")
    again = parse_form(TYPE, found.encoded({"model": "theirs"}))
    assert dict(again.fields) == {"model": "theirs", "language": "de"}
    assert (again.filename, again.file) == (found.filename, found.file)


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("multipart/form-data", form(FILE), "invalid_form"),
        (TYPE, b"", "invalid_form"),
        (TYPE, b"hello", "invalid_form"),
        (TYPE, form(value("model", "m"), FILE, end=""), "invalid_form"),
        (TYPE, form(value("model", "m")), "missing_field"),
        (TYPE, form(FILE, *[value("x", "y")] * (MAX_FIELDS + 1)), "invalid_form"),
        (TYPE, form(FILE, value("x", "y" * 70_000)), "invalid_form"),
        (TYPE, form(FILE, value("x", "\xff")), "invalid_form"),
        (TYPE, form("x" * 9000 + ": y\r\n\r\nz"), "invalid_form"),
    ],
)
def test_what_is_no_form_with_a_file_is_refused(content_type: str, body: bytes, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_form(content_type, body)
    assert caught.value.code == code
