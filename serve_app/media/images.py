"""What an image is, by its first bytes: nothing is decoded here."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

PNG = b"\x89PNG\r\n\x1a\n"
NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})
"""JPEG's markers among the start-of-frame ones that start no frame."""


MAX_SEGMENTS = 4096
"""Segments of a JPEG, and fill bytes between them, that are skipped on the way to its size."""


@dataclass(frozen=True, slots=True)
class ImageHead:
    media_type: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height


def image_head(data: bytes) -> ImageHead | None:
    """``None``: it is no PNG, JPEG, WebP or GIF, its head is cut, or stands behind more than
    ``MAX_SEGMENTS``."""
    for begins, media_type, size in FORMATS:
        if data.startswith(begins):
            try:
                found = size(data)
            except (struct.error, IndexError):
                return None
            return None if found is None or 0 in found else ImageHead(media_type, *found)
    return None


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[8:16]
    if kind == b"WEBPVP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"WEBPVP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"WEBPVP8X":
        wide, high = data[24:27], data[27:30]
        return int.from_bytes(wide, "little") + 1, int.from_bytes(high, "little") + 1
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Goes from segment to segment to the start of the frame."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in NO_SIZE:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + max(2, length)
    return None


FORMATS: tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int] | None]], ...] = (
    (PNG, "image/png", _png),
    (b"\xff\xd8", "image/jpeg", _jpeg),
    (b"RIFF", "image/webp", _webp),
    (b"GIF8", "image/gif", _gif),
)
