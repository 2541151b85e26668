"""How long a recording is, by its head: nothing is decoded here.

A head can lie. Engines decode the recording itself, so what a lie changes is the estimate of its work: it is
no shorter than its bytes at the highest rate that the format is used with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

PLAIN_MOST = 192_000 * 2 * 4.0
"""Bytes per second of uncompressed stereo with 192 kHz and 32 bits."""

FLAC_BYTES_PER_S = 50_000.0
FLAC_MOST = 192_000 * 2 * 3.0
OGG_MOST = 64_000.0
"""512 kbit/s: above Opus's highest rate and Vorbis's for stereo."""

MP4_BYTES_PER_S = 16_000.0
"""Assumed rate of a file whose head says 0, as in pieces that were recorded live: AAC, 128 kbit/s."""

MP4_MOST = 2_500_000.0
"""20 Mbit/s: it may be a film."""

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
MAX_PIECES = 1000
"""Chunks of a WAV and boxes of an MP4 that are passed over; each costs a microsecond of all clients' time."""

SYNC_WITHIN = 4096
"""Bytes behind an ID3 tag in which the first MP3 frame must begin."""


class Recorded(Protocol):
    """The bytes of a recording, which may lie in a file: only a few places of it are looked at."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...

    def rfind(self, wanted: bytes, /) -> int:
        """The same as that of ``bytes``."""
        ...


def audio_seconds(data: Recorded) -> float | None:
    """``None``: it is no WAV, FLAC, Ogg, MP3, MP4 or WebM, its head is cut, or stands behind more than
    ``MAX_PIECES``."""
    try:
        return _reader(data)(data)
    except (struct.error, IndexError, ZeroDivisionError, ValueError):
        return None


def _reader(data: Recorded) -> Callable[[Recorded], float | None]:
    head = data[:12]
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _wav
    if head[4:8] == b"ftyp":
        return _mp4
    return BY_BEGIN.get(head[:4], _mp3)


def _numbers(layout: str, data: Recorded, at: int) -> tuple[Any, ...]:
    return struct.unpack(layout, data[at : at + struct.calcsize(layout)])


def _wav(data: Recorded) -> float | None:
    at, bytes_per_s = 12, 0
    for _ in range(MAX_PIECES):
        name, length = _numbers("<4sI", data, at)
        if name == b"fmt ":
            channels, rate, _, align = _numbers("<HIIH", data, at + 10)
            bytes_per_s = rate * (align or channels)
        if name == b"data":
            rest = len(data) - at - 8
            return float(max(min(length or rest, rest) / bytes_per_s, rest / PLAIN_MOST))
        at += 8 + length + length % 2
    return None


def _flac(data: Recorded) -> float:
    (packed,) = _numbers(">Q", data, 18)
    rate, samples = packed >> 44, packed & 0xFFFFFFFFF
    seconds = samples / rate if samples else len(data) / FLAC_BYTES_PER_S
    return max(seconds, len(data) / FLAC_MOST)


def _ogg(data: Recorded) -> float | None:
    head = data[:512]
    if b"OpusHead" in head:
        rate = OPUS_RATE
    elif b"\x01vorbis" in head:
        (rate,) = struct.unpack_from("<I", head, head.index(b"\x01vorbis") + 12)
    else:
        return None
    (samples,) = _numbers("<q", data, data.rfind(b"OggS") + 6)
    return float(max(samples / rate, len(data) / OGG_MOST))


def _mp4(data: Recorded) -> float | None:
    begin, end = _box(data, b"moov", 0, len(data))
    at, _ = _box(data, b"mvhd", begin, end)
    (version,) = _numbers("B", data, at)
    layout, skip = (">IQ", 20) if version == 1 else (">II", 12)
    scale, duration = _numbers(layout, data, at + skip)
    seconds = float(duration / scale) if duration else len(data) / MP4_BYTES_PER_S
    return max(seconds, len(data) / MP4_MOST)


def _box(data: Recorded, wanted: bytes, at: int, end: int) -> tuple[int, int]:
    """Begin and end of the content of the first box with this name. Raises: ValueError: there is none."""
    for _ in range(MAX_PIECES):
        if at + 8 > end:
            break
        length, name = _numbers(">I4s", data, at)
        head = 8
        if length == 1:
            (length,) = _numbers(">Q", data, at + 8)
            head = 16
        length = length or end - at
        if name == wanted:
            return at + head, min(end, at + length)
        if length < head:
            break
        at += length
    raise ValueError(wanted)


def _mp3(data: Recorded) -> float | None:
    at = 0
    tag = data[:10]
    if tag[:3] == b"ID3":
        at = 10 + (tag[6] << 21 | tag[7] << 14 | tag[8] << 7 | tag[9])
        at += data[at : at + SYNC_WITHIN].index(b"\xff")
    first = data[at : at + 256]
    if first[0] != 0xFF or first[1] & 0xE0 != 0xE0:
        return None
    version, layer = first[1] >> 3 & 3, 4 - (first[1] >> 1 & 3)
    quality, rate_index = first[2] >> 4, first[2] >> 2 & 3
    if version == 1 or layer == 4 or quality in (0, 15) or rate_index == 3:
        return None
    is_one = version == 3
    rate = RATES[rate_index] >> {3: 0, 2: 1, 0: 2}[version]
    frames = _frames(first)
    if frames:
        most = BITRATES[is_one, layer][-1] * 1000
        seconds = frames * (1152 if is_one or layer == 2 else 576) / rate
        return max(seconds, (len(data) - at) * 8 / most)
    return (len(data) - at) * 8 / (BITRATES[is_one, layer][quality] * 1000)


def _frames(first: bytes) -> int:
    """The number of frames, if a recording's first frame says it; else 0."""
    for mark in (b"Xing", b"Info"):
        if mark in first:
            at = first.index(mark)
            flags, frames = struct.unpack_from(">II", first, at + 4)
            return int(frames) if flags & 1 else 0
    return 0


def _webm(data: Recorded) -> float:
    return len(data) / WEBM_BYTES_PER_S


BY_BEGIN: Mapping[bytes, Callable[[Recorded], float | None]] = {
    b"fLaC": _flac,
    b"OggS": _ogg,
    b"\x1aE\xdf\xa3": _webm,
}
