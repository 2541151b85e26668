"""Audio at OpenAI's rate as vLLM takes it: 16-bit PCM, mono, from 24 kHz to 16 kHz, while it comes."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

OPENAI_RATE = 24_000
ENGINE_RATE = 16_000
SAMPLE_BYTES = 2

HALF = 72
"""Taps at 48 kHz on each side of the filter's centre: 1.5 ms."""

CUTOFF_HZ = 7_200.0
BETA = 8.0
"""Kaiser window: what lies above 8 kHz is 80 dB down, what lies below 6.4 kHz passes unchanged."""

WINDOW = HALF + 2
"""Samples of the input that each pair of output samples is made of."""

STEP = 3
"""Samples of the input for each pair of output samples."""

PAIRS = 25
"""Pairs of output samples that are computed at once. The input they are made of lies in two blocks that
follow each other, so that the whole is two products of contiguous matrices: many times as fast as a product
with windows that overlap, for which numpy has no BLAS."""

BLOCK = PAIRS * STEP


class Resampler:
    """One stream of audio. Its output is aligned with its input; the last 1.5 ms come with ``rest``."""

    def __init__(self) -> None:
        self._buffer = np.zeros(HALF // 2, dtype=np.float32)
        self._received = 0
        self._given = 0

    def feed(self, pcm: bytes) -> bytes:
        """``pcm`` are whole little-endian samples; the output may be empty."""
        samples = np.frombuffer(pcm, dtype="<i2").astype(np.float32)
        self._received += len(samples)
        return self._filtered(samples)

    def rest(self) -> bytes:
        """The end of the stream: as much output as the whole input is long. Nothing may be fed after it."""
        due = self._received * ENGINE_RATE // OPENAI_RATE - self._given
        silence = np.zeros(WINDOW + STEP, dtype=np.float32)
        return self._filtered(silence)[: max(0, due) * SAMPLE_BYTES]

    def _filtered(self, samples: NDArray[np.float32]) -> bytes:
        buffer = np.concatenate((self._buffer, samples))
        pairs = (len(buffer) - WINDOW) // STEP + 1
        if pairs <= 0:
            self._buffer = buffer
            return b""
        made = _paired(buffer, pairs)
        self._buffer = buffer[pairs * STEP :]
        self._given += 2 * pairs
        whole: bytes = np.clip(np.rint(made), -32768, 32767).astype("<i2").tobytes()
        return whole


def _paired(buffer: NDArray[np.float32], pairs: int) -> NDArray[np.float32]:
    """The first ``pairs`` pairs of output samples, one after the other."""
    rows = -(-pairs // PAIRS)
    padded = np.zeros((rows + 1) * BLOCK, dtype=np.float32)
    padded[: len(buffer)] = buffer  # always shorter: it ends within a step behind the last pair's window
    blocks = padded.reshape(rows + 1, BLOCK)
    first, second = _block_taps()
    made: NDArray[np.float32] = blocks[:-1] @ first + blocks[1:] @ second
    return made.reshape(-1)[: 2 * pairs]


@cache
def _block_taps() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The filter for all pairs of a block: what they take of this block and of the next one."""
    taps = np.zeros((2 * BLOCK, 2 * PAIRS), dtype=np.float32)
    for pair in range(PAIRS):
        taps[STEP * pair : STEP * pair + WINDOW, 2 * pair : 2 * pair + 2] = _taps()
    return taps[:BLOCK], taps[BLOCK:]


@cache
def _taps() -> NDArray[np.float32]:
    """The filter's two phases, one column for each sample of a pair of outputs.

    The input is taken at 48 kHz with a zero behind every sample, and every third sample of the filtered
    signal is kept: an even one meets the even taps only, an odd one the odd ones.
    """
    position = np.arange(-HALF, HALF + 1)
    cutoff = CUTOFF_HZ / OPENAI_RATE  # of half the rate of 48 kHz
    taps = np.sinc(cutoff * position) * cutoff * np.kaiser(2 * HALF + 1, BETA)
    taps *= 2 / taps.sum()
    phases = np.zeros((WINDOW, 2))
    phases[: HALF + 1, 0] = taps[::2]
    phases[2:, 1] = taps[1::2]
    return phases.astype(np.float32)
