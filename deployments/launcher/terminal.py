"""Lines for the terminal."""

from __future__ import annotations

import os
import sys
import time


def say(text: str) -> None:
    """Print a line. The terminal may be gone (SIGHUP); that must not break the shutdown."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_step(text: str, started: float) -> None:
    """Print a step and the seconds since ``started`` (``time.monotonic``)."""
    say(f"  {text:<64} {time.monotonic() - started:6.1f} s")
