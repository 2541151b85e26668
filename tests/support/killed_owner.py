"""A process that owns a file, and is killed while it writes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

Works = Callable[[str, Connection], None]
"""Works on the folder for ever, and sends the number of each piece of work that it has acknowledged."""

WITHIN_S = 60.0


def acknowledged_when_killed(works: Works, folder: object, least: int = 20) -> int:
    """Run ``works`` in a process of its own, kill it after ``least`` pieces of work, and return the number of
    the last one that it has acknowledged."""
    spawn = multiprocessing.get_context("spawn")
    reading, writing = spawn.Pipe(duplex=False)
    owner = spawn.Process(target=works, args=(str(folder), writing))
    owner.start()
    writing.close()
    acknowledged = 0
    while acknowledged < least:
        assert reading.poll(WITHIN_S)
        acknowledged = reading.recv()
    owner.kill()
    owner.join()
    try:
        while reading.poll(0):
            acknowledged = reading.recv()
    except (EOFError, OSError):
        pass
    return acknowledged
