"""Watches the weights arrive in the hub client's cache while engines start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.terminal import say

LOOK_EVERY_S = 5.0
SAY_EVERY_S = 30.0
GB = 1e9


def hub_cache(environment: Mapping[str, str]) -> Path:
    """The hub client's cache folder, as the client itself finds it."""
    home = environment.get("HF_HOME") or "~/.cache/huggingface"
    return Path(environment.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


class Downloads:
    """Says how much was downloaded so far, and at what rate. ``clock`` counts seconds."""

    def __init__(
        self, cache: Path, clock: Callable[[], float] = time.monotonic, tell: Callable[[str], None] = say
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._tell = tell
        self._first = self._bytes = self._size()
        self._looked = self._said = clock()
        self._said_bytes = self._bytes

    def progress(self) -> int:
        """Bytes downloaded since the start; a larger number means that the download goes on."""
        now = self._clock()
        if now >= self._looked + LOOK_EVERY_S:
            self._looked, self._bytes = now, self._size()
        if now >= self._said + SAY_EVERY_S:
            if self._bytes > self._said_bytes:
                rate = (self._bytes - self._said_bytes) / (now - self._said)
                so_far = (self._bytes - self._first) / GB
                self._tell(f"    downloading weights: {so_far:.1f} GB so far, {rate / 1e6:.0f} MB/s")
            self._said, self._said_bytes = now, self._bytes
        return self._bytes - self._first

    def _size(self) -> int:
        """Bytes of all files that were or are being downloaded; each has one blob, links do not count."""
        return sum(_size(path) for path in self._cache.glob("models--*/blobs/*"))


def _size(path: Path) -> int:
    """0 where the file has just been renamed: the next look finds it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
