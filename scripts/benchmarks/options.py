"""What every benchmark is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """``quick``: one repeat and shorter runs, to see that everything works; its figures mean nothing."""

    out: Path
    repeats: int = 3
    quick: bool = False
    litellm: bool = False

    def order(self, repeat: int) -> int:
        """1 or -1: every other repeat goes through what is compared backwards."""
        return -1 if repeat % 2 else 1
