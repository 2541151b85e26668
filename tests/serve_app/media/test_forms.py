"""Forms with a file."""

from __future__ import annotations

import hashlib

import pytest

from serve_app.errors import BadRequest
from serve_app.media.forms import MAX_FIELDS, Form, FormReader

TYPE = "multipart/form-data; boundary=edge"


def form(*parts: str, end: str = "--edge--\r\n") -> bytes:
    return ("".join(f"--edge\r\n{part}\r\n" for part in parts) + end).encode("latin-1")


def value(name: str, text: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'


FILE = (
    'Content-Disposition: form-data; name="file"; filename="a b.wav"\r\n'
    "Content-Type: audio/wav\r\n\r\nRI\0\xffFF\r\n--x"
)


def read(content_type: str, body: bytes, step: int = 1 << 16) -> tuple[Form, bytes]:
    """The form, and its file's bytes, of a body that arrives in pieces of ``step`` bytes."""
    taken = bytearray()
    reader = FormReader(content_type, taken.extend)
    for begin in range(0, len(body), step):
        reader.feed(body[begin : begin + step])
    return reader.end(hashlib.sha256(taken).digest()), bytes(taken)


WHOLE = form(value("model", "mine"), FILE, value("language", "de"))


@pytest.mark.parametrize("step", [*range(1, 12), len(WHOLE) // 2, len(WHOLE)])
def test_it_is_read_in_any_pieces_and_written_again_with_another_model(step: int) -> None:
    found, file = read(TYPE, WHOLE, step)
    assert (found.get("model"), found.get("language"), found.get("prompt")) == ("mine", "de", None)
    assert (found.filename, found.file_type, file) == ("a b.wav", "audio/wav", b"RI\0\xffFF\r\n--x")
    before, behind = found.around({"model": "theirs"})
    again, same = read(TYPE, before + file + behind)
    assert dict(again.fields) == {"model": "theirs", "language": "de"}
    assert (again.filename, again.digest, same) == (found.filename, found.digest, file)


def test_a_file_with_beginnings_of_the_boundary_is_read_as_it_is() -> None:
    inside = "\r\n--edg\r\n--ed\r\r\n\r\n--" * 40
    body = form('Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + inside)
    assert {read(TYPE, body, step)[1] for step in range(1, 30)} == {inside.encode()}


def test_the_same_content_is_known_again_under_another_boundary() -> None:
    found, _ = read(TYPE, WHOLE)
    other, _ = read(TYPE.replace("edge", "rim"), WHOLE.replace(b"--edge", b"--rim"))
    changed, _ = read(TYPE, WHOLE.replace(b"RI\0", b"RI\1"))
    assert found.content == other.content != changed.content


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
        (TYPE, form(FILE, FILE), "invalid_form"),
        (TYPE, form("x" * 9000 + ": y\r\n\r\nz"), "invalid_form"),
    ],
)
def test_what_is_no_form_with_a_file_is_refused(content_type: str, body: bytes, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(content_type, body)
    assert caught.value.code == code
