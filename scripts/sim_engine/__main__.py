"""The scripted engine as a separate process."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import fields
from pathlib import Path
from typing import Any

import sim_engine
from sim_engine.engine import SimEngine
from sim_engine.faults import parse_faults
from sim_engine.settings import SimSettings


async def serve(options: argparse.Namespace) -> int:
    """Run until a signal (0) or ``POST /sim/die`` (1); the exit status."""
    values = {item.name: getattr(options, item.name) for item in fields(SimSettings)}
    engine = SimEngine(SimSettings(**values), parse_faults(options.faults))
    url = await engine.start(options.host, options.port)
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    if options.ready_file is not None:
        part = options.ready_file.with_suffix(".part")
        part.write_text(json.dumps({"url": url, "pid": os.getpid()}))
        part.replace(options.ready_file)
    print(url, flush=True)
    waits = [asyncio.ensure_future(happened.wait()) for happened in (signalled, engine.ended)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if signalled.is_set():
        await engine.stop()
    await asyncio.wait(waits[1:])
    for wait in waits:
        wait.cancel()
    return 0 if signalled.is_set() else 1


def run(main: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed, because its timers are more precise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "sim_engine", description=sim_engine.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--ready-file", type=Path, help="gets url and pid as JSON once the engine listens")
    parser.add_argument("--faults", default="", help="such as die_after=5,times=1")
    for item in fields(SimSettings):
        flag = "--" + item.name.replace("_", "-")
        kind: dict[str, Any] = {"type": type(item.default)}
        if isinstance(item.default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        parser.add_argument(flag, default=item.default, help=f"{item.default!r}", **kind)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run(serve(arguments())))
