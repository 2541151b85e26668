"""How long a recording is, by its head: nothing is decoded here.

A head can lie. Engines decode the recording itself, so what a lie changes is the estimate of its work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

FLAC_BYTES_PER_S = 50_000.0
WEBM_BYTES_PER_S = 4_000.0
"""Speech as Opus, 32 kbit/s; the length stands at no fixed place."""

OPUS_RATE = 48_000
BITRATES = {
    # (MPEG-1?, layer): kbit/s by index
    (True, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = (44_100, 48_000, 32_000)
SYNC_WITHIN = 4096
"""Bytes behind an ID3 tag in which the first MP3 frame must begin."""


def audio_seconds(data: bytes) -> float | None:
    """``None``: it is no WAV, FLAC, Ogg, MP3, MP4 or WebM, or its head is cut."""
    try:
        return _reader(data)(data)
    except (struct.error, IndexError, ZeroDivisionError, ValueError):
        return None


def _reader(data: bytes) -> Callable[[bytes], float | None]:
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wav
    if data[4:8] == b"ftyp":
        return _mp4
    return BY_BEGIN.get(data[:4], _mp3)


def _wav(data: bytes) -> float | None:
    at, bytes_per_s = 12, 0
    while at + 8 <= len(data):
        name, (length,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        if name == b"fmt ":
            channels, rate, _, align = struct.unpack_from("<HIIH", data, at + 10)
            bytes_per_s = rate * (align or channels)
        if name == b"data":
            return float(min(length, len(data) - at - 8) / bytes_per_s)
        at += 8 + length + length % 2
    return None


def _flac(data: bytes) -> float:
    (packed,) = struct.unpack_from(">Q", data, 18)
    rate, samples = packed >> 44, packed & 0xFFFFFFFFF
    return samples / rate if samples else len(data) / FLAC_BYTES_PER_S


def _ogg(data: bytes) -> float | None:
    head = data[:512]
    if b"OpusHead" in head:
        rate = OPUS_RATE
    elif b"\x01vorbis" in head:
        (rate,) = struct.unpack_from("<I", head, head.index(b"\x01vorbis") + 12)
    else:
        return None
    (samples,) = struct.unpack_from("<q", data, data.rindex(b"OggS") + 6)
    return float(max(0, samples) / rate)


def _mp4(data: bytes) -> float | None:
    for name, begin, end in _boxes(data, 0, len(data)):
        if name == b"moov":
            for inner, at, _ in _boxes(data, begin, end):
                if inner == b"mvhd":
                    layout, skip = (">IQ", 20) if data[at] == 1 else (">II", 12)
                    scale, duration = struct.unpack_from(layout, data, at + skip)
                    return float(duration / scale)
    return None


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, begin and end of each box's content."""
    while at + 8 <= end:
        (length,) = struct.unpack_from(">I", data, at)
        head = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        length = length or end - at
        if length < head:
            return
        yield data[at + 4 : at + 8], at + head, min(end, at + length)
        at += length


def _mp3(data: bytes) -> float | None:
    at = 0
    if data[:3] == b"ID3":
        size = data[6:10]
        at = 10 + (size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3])
        at = next((n for n in range(at, min(len(data), at + SYNC_WITHIN)) if data[n] == 0xFF), len(data))
    if data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    version, layer = data[at + 1] >> 3 & 3, 4 - (data[at + 1] >> 1 & 3)
    quality, rate_index = data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version == 1 or layer == 4 or quality in (0, 15) or rate_index == 3:
        return None
    is_one = version == 3
    rate = RATES[rate_index] >> {3: 0, 2: 1, 0: 2}[version]
    frames = _frames(data[at : at + 256])
    if frames:
        return frames * (1152 if is_one or layer == 2 else 576) / rate
    return (len(data) - at) * 8 / (BITRATES[is_one, layer][quality] * 1000)


def _frames(first: bytes) -> int:
    """Of a recording whose first frame says how many there are; else 0."""
    for mark in (b"Xing", b"Info"):
        if mark in first:
            at = first.index(mark)
            flags, frames = struct.unpack_from(">II", first, at + 4)
            return int(frames) if flags & 1 else 0
    return 0


def _webm(data: bytes) -> float:
    return len(data) / WEBM_BYTES_PER_S


BY_BEGIN: Mapping[bytes, Callable[[bytes], float | None]] = {
    b"fLaC": _flac,
    b"OggS": _ogg,
    b"\x1aE\xdf\xa3": _webm,
}
