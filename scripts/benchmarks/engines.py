"""Scripted engines, each in its own process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import Endpoint
from benchmarks.peers.endpoint import SCRIPTS

START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0


class ScriptedProcess:
    """One engine that can be killed and started again on the same port."""

    def __init__(self, folder: Path, model: str, flags: tuple[str, ...]) -> None:
        self._ready = folder / "ready.json"
        self._command = [sys.executable, "-m", "sim_engine", "--model", model, *flags]
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.url = ""
        self._model = model

    @property
    def endpoint(self) -> Endpoint:
        assert self._process is not None, "start it first"
        return Endpoint("scripted engine", self.url, self._model, (self._process.pid,))

    def start(self) -> None:
        """Raises: RuntimeError: the engine does not listen in time."""
        self._ready.unlink(missing_ok=True)
        listen = ["--port", str(self._port), "--ready-file", str(self._ready)]
        self._process = subprocess.Popen([*self._command, *listen], stdin=subprocess.DEVNULL, cwd=SCRIPTS)
        deadline = time.monotonic() + START_LIMIT_S
        while not (self._ready.exists() and self._ready.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the scripted engine did not start")
            time.sleep(0.02)
        self.url = json.loads(self._ready.read_text())["url"]
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill the process: every connection is reset at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, signum: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signum)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def scripted_process(model: str, **settings: object) -> Iterator[ScriptedProcess]:
    """A started engine; ``settings`` are the fields of ``sim_engine.SimSettings``."""
    flags = tuple(word for name, value in settings.items() for word in _flag(name, value))
    with TemporaryDirectory() as folder:
        process = ScriptedProcess(Path(folder), model, flags)
        process.start()
        try:
            yield process
        finally:
            process.stop()


def _flag(name: str, value: object) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return (f"--{flag}" if value else f"--no-{flag}",)
    return f"--{flag}", str(value)


@contextmanager
def scripted_engine(model: str, tokens: int, itl_ms: float, slots: int = 512) -> Iterator[Endpoint]:
    """An engine whose answers have ``tokens`` tokens, each of which takes ``itl_ms``, including the first."""
    with scripted_process(model, tokens=tokens, itl_ms=itl_ms, first_token_ms=itl_ms, slots=slots) as process:
        yield process.endpoint
