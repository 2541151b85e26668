"""How far a stage of a quantization is, in words. llm-compressor has bars of its own while it calibrates."""

from __future__ import annotations

STAGES = ("load", "samples", "measure", "quantise", "measure again", "save")


def stage_line(stage: str, text: str) -> str:
    """Raises: ValueError: there is no such stage."""
    return f"[{STAGES.index(stage) + 1}/{len(STAGES)}] {text}"


class Share:
    """Says each tenth of a stage once, with the time left by what the part until now took."""

    def __init__(self, what: str, total: int, began: float) -> None:
        self._what = what
        self._total = total
        self._began = began
        self._tenth = 0

    def line(self, done: int, now: float) -> str | None:
        """``None`` within the same tenth, and at the end."""
        tenth = 10 * done // max(self._total, 1)
        if tenth <= self._tenth or done >= self._total:
            return None
        self._tenth = tenth
        left = (now - self._began) / done * (self._total - done)
        return f"{self._what}: {done} of {self._total} ({100 * done // self._total} %), {_shown(left)} left"


def _shown(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
