"""A header that is no UTF-8 is refused by name."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.request.headers import require_utf8


def test_headers_in_utf8_are_accepted() -> None:
    require_utf8([])
    require_utf8([(b"x-a", b""), (b"x-b", b"plain"), (b"x-c", "Größe 東京 👍".encode())])


@pytest.mark.parametrize("value", [b"\xff", b"ok \xe9", b"\xc3", b"\xed\xa0\x80", "é".encode("latin-1")])
def test_the_first_header_that_is_no_utf8_is_named_but_not_shown(value: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        require_utf8([(b"x-good", b"fine"), (b"x-bad", value), (b"x-worse", b"\xff")])
    assert (caught.value.param, caught.value.code) == ("x-bad", "invalid_header")
    assert caught.value.message == "Header `x-bad` is not valid UTF-8."


def test_a_header_with_a_name_beyond_ascii_is_named_all_the_same() -> None:
    with pytest.raises(BadRequest) as caught:
        require_utf8([(b"x-\xff", b"\xff")])
    assert caught.value.param == "x-ÿ"
