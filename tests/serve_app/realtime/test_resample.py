"""24 kHz to 16 kHz: what it hears, what it must not fold down, and pieces of any size."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.realtime.resample import ENGINE_RATE, HALF, OPENAI_RATE, STEP, WINDOW, Resampler, _taps


def tone(hertz: float, seconds: float = 1.0, rate: int = OPENAI_RATE) -> bytes:
    at = np.arange(int(rate * seconds)) / rate
    return np.rint(16_000 * np.sin(2 * np.pi * hertz * at)).astype("<i2").tobytes()


def resampled(pcm: bytes, piece: int = 1 << 20) -> np.ndarray:
    stream = Resampler()
    parts = [stream.feed(pcm[start : start + piece]) for start in range(0, len(pcm), piece)]
    return np.frombuffer(b"".join(parts) + stream.rest(), "<i2").astype(float)


@pytest.mark.parametrize("hertz", [100, 440, 3000, 6000])
def test_speech_passes_in_its_place_and_at_its_loudness(hertz: float) -> None:
    heard = resampled(tone(hertz))
    expected = np.frombuffer(tone(hertz, rate=ENGINE_RATE), "<i2").astype(float)
    assert len(heard) == ENGINE_RATE
    inside = slice(200, -200)  # the ends meet silence
    assert np.abs(heard[inside] - expected[inside]).max() < 16_000 * 0.005


@pytest.mark.parametrize("hertz", [8_500, 10_000, 11_500])
def test_what_16_khz_cannot_carry_is_removed_and_not_folded_down(hertz: float) -> None:
    heard = resampled(tone(hertz))
    assert np.abs(heard[200:-200]).max() < 16_000 * 0.002


@pytest.mark.parametrize("piece", [2, 14, 482, 4_800, 9_998])
def test_pieces_of_any_size_give_the_same_audio(piece: int) -> None:
    pcm = np.random.default_rng(3).integers(-20_000, 20_000, 4_801).astype("<i2").tobytes()
    assert np.abs(resampled(pcm, piece) - resampled(pcm)).max() <= 1
    assert len(resampled(pcm, piece)) == 4_801 * 2 // 3


def test_full_scale_is_clipped_and_does_not_wrap_around() -> None:
    square = np.tile(np.repeat(np.array([32767, -32768]), 24), 500).astype("<i2").tobytes()
    heard = resampled(square)
    wanted = np.sign(np.sin(2 * np.pi * 500 * (np.arange(len(heard)) + 0.25) / ENGINE_RATE))
    assert np.mean(np.sign(heard[100:-100]) == wanted[100:-100]) > 0.95
    assert heard.max() == 32767


def test_silence_and_nothing_stay_so() -> None:
    assert not resampled(bytes(4_800)).any()
    assert len(resampled(b"")) == 0


def test_each_output_sample_is_the_filter_over_its_own_window() -> None:
    pcm = np.random.default_rng(5).integers(-20_000, 20_000, 1_000).astype("<i2")
    padded = np.concatenate((np.zeros(HALF // 2), pcm, np.zeros(WINDOW)))
    windows = [padded[start : start + WINDOW] for start in range(0, len(pcm), STEP)]
    expected = np.concatenate([window @ _taps() for window in windows])[: len(pcm) * 2 // 3]
    assert np.abs(resampled(pcm.tobytes()) - expected).max() <= 0.51
