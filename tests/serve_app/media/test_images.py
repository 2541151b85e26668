"""What an image is, and how large, by its head."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from serve_app.errors import BadRequest
from serve_app.media.data_urls import check_data_url, data_url
from serve_app.media.images import MAX_SEGMENTS, image_head
from serve_app.settings.media import MediaSettings

SMALL = MediaSettings(max_image_bytes=4096, max_image_pixels=1000)


def picture(kind: str, width: int = 30, height: int = 20, **options: object) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(content, kind, **options)
    return content.getvalue()


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (picture("PNG"), "image/png"),
        (picture("GIF"), "image/gif"),
        (picture("JPEG"), "image/jpeg"),
        (picture("JPEG", progressive=True), "image/jpeg"),
        (picture("JPEG", exif=b"Exif\0\0" + bytes(500)), "image/jpeg"),
        (picture("WEBP"), "image/webp"),
        (picture("WEBP", lossless=True), "image/webp"),
        (picture("WEBP", exif=b"Exif\0\0" + bytes(10)), "image/webp"),
    ],
)
def test_size_and_type_stand_in_the_head(data: bytes, media_type: str) -> None:
    head = image_head(data)
    assert head is not None
    assert (head.media_type, head.width, head.height) == (media_type, 30, 20)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "JPEG", "WEBP"])
def test_an_image_that_is_cut_anywhere_is_none_or_has_its_size(kind: str) -> None:
    data = picture(kind)
    for end in range(len(data)):
        head = image_head(data[:end])
        assert head is None or (head.width, head.height) == (30, 20)


class Counted(bytes):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("filler", [b"\xff", b"\xff\xe0\0\2"])
def test_a_picture_of_fillers_is_none_after_a_bounded_walk(filler: bytes) -> None:
    data = Counted(b"\xff\xd8" + filler * 20_000)
    assert image_head(data) is None
    assert data.looks <= 3 * MAX_SEGMENTS


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7", b"BM" + bytes(60), b"\xff\xd8" + b"\xff" * 99])
def test_anything_else_is_none(data: bytes) -> None:
    assert image_head(data) is None


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png,AAAA", "invalid_image"),
        ("data:image/png;base64", "invalid_image"),
        ("data:image/png;base64,A*AA", "invalid_image"),
        ("data:image/png;base64," + base64.b64encode(b"hello").decode(), "invalid_image"),
        (data_url("image/png", picture("PNG", 300, 300)), "image_too_large"),
        ("data:image/png;base64," + "A" * 8000, "image_too_large"),
    ],
)
def test_a_data_url_is_an_image_within_the_limits(url: str, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_data_url(url, "messages[0].content[0].image_url.url", SMALL)
    assert (caught.value.code, caught.value.param) == (code, "messages[0].content[0].image_url.url")


def test_a_good_one_passes() -> None:
    check_data_url(data_url("image/png", picture("PNG")), "x", SMALL)
