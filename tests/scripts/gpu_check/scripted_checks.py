"""Checks for the tests of the runner: a registry instead of ``gpu_check.registry``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import at_most
from gpu_check.contract import Bench, Check, Finding, finding, judged

FOREVER_S = 600.0
PIDS = "PIDS_FILE"
"""The variable that names the file into which a hanging check writes its own and its orphan's process id."""

ORPHAN = """
import subprocess, sys
code = "import time; time.sleep(600)"
quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
print(subprocess.Popen([sys.executable, "-c", code], **quiet).pid)
"""


def passing(bench: Bench) -> Iterator[Finding]:
    yield finding("first", judged("time", 2, "ms", at_most(3)), reason=bench.model)


def missing(bench: Bench) -> Iterator[Finding]:
    yield finding("slow", judged("time", 4, "ms", at_most(3)))


def raising(bench: Bench) -> Iterator[Finding]:
    yield finding("before the error")
    raise ValueError("the engine did not start")


def hanging(bench: Bench) -> Iterator[Finding]:
    """Deaf to SIGTERM, and with an orphan in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ran = subprocess.run(
        [sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True, start_new_session=True
    )
    yield finding("before the wait")
    file = Path(os.environ[PIDS])
    whole = file.with_suffix(".part")
    whole.write_text(f"{os.getpid()} {ran.stdout}")
    whole.rename(file)
    time.sleep(FOREVER_S)


def dying(bench: Bench) -> Iterator[Finding]:
    yield finding("before the end")
    os.kill(os.getpid(), signal.SIGKILL)


def silent(bench: Bench) -> Iterator[Finding]:
    yield from ()


def tidy(bench: Bench) -> Iterator[Finding]:
    """Ends what it started when it is told to stop."""
    try:
        yield finding("begun")
        Path(os.environ[PIDS]).write_text(f"{os.getpid()}")
        time.sleep(FOREVER_S)
    finally:
        Path(os.environ[PIDS]).with_suffix(".tidied").touch()


CHECKS = (
    Check("passing", "It passes.", 60, passing),
    Check("missing", "A figure misses its target.", 60, missing),
    Check("raising", "It raises.", 60, raising),
    Check("hanging", "It hangs.", 6, hanging),
    Check("dying", "It dies.", 60, dying),
    Check("silent", "It finds nothing.", 60, silent),
    Check("gpu", "It needs a GPU.", 60, passing, needs_gpu=True),
    Check("tidy", "It waits for Ctrl-C.", 60, tidy),
)
