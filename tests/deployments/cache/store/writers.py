"""Processes that write to a store until they are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@dataclass
class Writer:
    """The other process, and what it said so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def read_until(self, last: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if self.lines[-1] == last:
                return
        pytest.fail(f"the writer ended before {last!r}")

    def kill(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        with self.process.stdout as stream:
            rest = stream.read().splitlines(keepends=True)
        self.lines += [line.strip() for line in rest if line.endswith("\n")]  # the last one may be cut
        self.process.wait()


@contextmanager
def writer(script: str, folder: Path, first: int) -> Iterator[Writer]:
    """``script`` lies beside this file. Killed at the end of the block."""
    command = [sys.executable, str(HERE / script), str(folder), str(first)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    started = Writer(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        yield started
    finally:
        started.kill()
