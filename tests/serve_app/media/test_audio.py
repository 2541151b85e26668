"""How long a recording is, by its head."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from support.recordings import wav

from serve_app.media.audio import MAX_PIECES, audio_seconds


def flac(samples: int, rate: int = 44_100) -> bytes:
    packed = rate << 44 | 1 << 41 | 15 << 36 | samples
    return b"fLaC\x80\0\0\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)


def ogg(head: bytes, samples: int) -> bytes:
    page = b"OggS\0\x02" + struct.pack("<q", 0) + bytes(13) + head
    return page + b"OggS\0\x04" + struct.pack("<q", samples) + bytes(20)


def mp3(frames: int, tag: bytes = b"") -> bytes:
    frame = b"\xff\xfb\x90\x00" + bytes(413)  # MPEG-1, layer 3, 128 kbit/s, 44.1 kHz
    return tag + frame * frames


def mp4(seconds: int) -> bytes:
    mvhd = b"mvhd" + bytes(12) + struct.pack(">II", 1000, seconds * 1000) + bytes(80)
    moov = b"moov" + struct.pack(">I", len(mvhd) + 4) + mvhd
    return b"\0\0\0\x10ftypM4A \0\0\0\0" + struct.pack(">I", len(moov) + 4) + moov


RECORDINGS = {
    "wav": (wav(2.5, rate=16_000), 2.5),
    "wav, stereo": (wav(1.5, rate=48_000, channels=2), 1.5),
    "flac": (flac(88_200), 2.0),
    "opus": (ogg(b"OpusHead", 96_000), 2.0),
    "vorbis": (ogg(b"\x01vorbis" + struct.pack("<IBI", 0, 2, 22_050), 44_100), 2.0),
    "mp3": (mp3(100), 2.6),
    "mp3 with a tag": (mp3(100, b"ID3\x04\0\0\0\0\0\x0a" + bytes(10)), 2.6),
    "m4a": (mp4(7), 7.0),
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_its_length_stands_in_its_head(kind: str) -> None:
    data, seconds = RECORDINGS[kind]
    assert audio_seconds(data) == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"hello, this is no recording", b"%PDF-1.7" + bytes(99), bytes(500)]
)
def test_anything_else_is_none(data: bytes) -> None:
    assert audio_seconds(data) is None


@pytest.mark.parametrize("kind", RECORDINGS)
def test_one_that_is_cut_anywhere_raises_nothing(kind: str) -> None:
    data, _ = RECORDINGS[kind]
    for end in range(min(len(data), 300)):
        seconds = audio_seconds(data[:end])
        assert seconds is None or seconds >= 0


class Counted(bytes):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)


FTYP = b"\0\0\0\x10ftypM4A \0\0\0\0"
WALKS = {
    "wav": b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 50_000,
    "boxes": FTYP + b"\0\0\0\x08free" * 50_000,
    "boxes within": FTYP + b"\0\0\0\0moov" + b"\0\0\0\x08free" * 50_000,
    "many heads": FTYP + (b"\0\0\0\x80moov" + b"\0\0\0\x08free" * 15) * 5_000,
}


@pytest.mark.parametrize("kind", WALKS)
def test_a_recording_of_empty_pieces_is_none_after_a_bounded_walk(kind: str) -> None:
    data = Counted(WALKS[kind])
    assert audio_seconds(data) is None
    assert data.looks <= 2 * MAX_PIECES + 20


MUCH = bytes(10_000_000)
LIES = {
    "wav, no data": (wav(0, rate=16_000)[:-4] + bytes(4) + MUCH, 300),
    "wav, a high rate": (wav(0, rate=2_000_000_000)[:-4] + b"\xff" * 4 + MUCH, 5),
    "flac": (flac(1) + MUCH, 8),
    "opus": (ogg(b"OpusHead", 1) + MUCH, 150),
    "mp3": (mp3(1)[:40] + b"Xing\0\0\0\1\0\0\0\1" + MUCH, 240),
    "m4a": (mp4(0) + MUCH, 600),
    "m4a, one second": (mp4(1) + MUCH, 4),
}


@pytest.mark.parametrize("kind", LIES)
def test_many_bytes_are_no_short_recording_whatever_the_head_says(kind: str) -> None:
    data, least = LIES[kind]
    seconds = audio_seconds(data)
    assert seconds is not None
    assert seconds >= least


def test_a_head_without_a_rate_is_none() -> None:
    data = bytearray(wav(1.0, rate=16_000))
    data[24:34] = bytes(10)
    assert audio_seconds(bytes(data)) is None
