"""Reads how far engines are from the logs of this start's Ray, while they start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deployments.launcher.progress import EngineStartLines
from deployments.launcher.terminal import say

LOOK_EVERY_S = 2.0
SAY_EVERY_S = 15.0
"""Time between two reports of one stage's share; a new stage is reported at once."""

MOST_BYTES = 1 << 20
"""Read at one look from one file."""

LOGS = ("worker-*.out", "worker-*.err")
"""Log files of every replica; the replica's own log lines are in the second too."""


class EngineLogs:
    """``ray``: the folder of this start's Ray. Reads what is new in each file, and reports
    what engines say."""

    def __init__(
        self, ray: Path, clock: Callable[[], float] = time.monotonic, tell: Callable[[str], None] = say
    ) -> None:
        self._logs = ray / "session_latest" / "logs"
        self._clock = clock
        self._tell = tell
        self._looked = float("-inf")
        self._read: dict[Path, int] = {}
        self._starts: dict[str, EngineStartLines] = {}
        self._said: dict[str, tuple[str, str, float]] = {}
        self._changes = 0

    def progress(self) -> int:
        """Grows with each message: a start that says something goes on."""
        now = self._clock()
        if now >= self._looked + LOOK_EVERY_S:
            self._looked = now
            for key, lines in self._new_lines():
                start = self._starts.setdefault(key, EngineStartLines())
                for line in lines:
                    start.read(line)
            for key, start in self._starts.items():
                self._say(key, start, now)
        return self._changes

    def _new_lines(self) -> Iterator[tuple[str, list[str]]]:
        for pattern in LOGS:
            for path in sorted(self._logs.glob(pattern)):
                if lines := self._new_lines_of(path):
                    yield path.stem, lines

    def _new_lines_of(self, path: Path) -> list[str]:
        at = self._read.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(at)
                found = file.read(MOST_BYTES)
        except OSError:
            return []
        end = max(found.rfind(b"\n"), found.rfind(b"\r")) + 1
        self._read[path] = at + end
        return found[:end].decode(errors="replace").replace("\r", "\n").splitlines()

    def _say(self, key: str, start: EngineStartLines, now: float) -> None:
        if start.engine is None or not start.stage:
            return
        stage, shown, at = self._said.get(key, ("", "", 0.0))
        if start.stage != stage or (start.shown != shown and now >= at + SAY_EVERY_S):
            self._tell(f"    {start.engine}: {start.shown}")
            self._said[key] = start.stage, start.shown, now
            self._changes += 1
