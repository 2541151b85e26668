"""The options of all benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """``quick``: one repeat and shorter runs, to see that everything works; the figures mean nothing.
    ``noise``: the kinds of noise that `noisy` makes; ``parts``: the parts of `teams` that run. Empty: all."""

    out: Path
    repeats: int = 3
    quick: bool = False
    litellm: bool = False
    noise: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def order(self, repeat: int) -> int:
        """1 or -1: every second repeat runs in reverse order."""
        return -1 if repeat % 2 else 1
