"""The log handler in vLLM's processes: writes the records that the replica reads.

vLLM's processes import this module before anything else, so it imports almost nothing.

Checked against vLLM 0.29. When it moves, look at the texts in ``MARKS`` and ``FAILURES``
(``v1/engine/core.py``, ``v1/worker/*model_runner.py``, ``compilation/monitor.py``,
``v1/executor/multiproc_executor.py``). If a text has changed, one phase or the reason of a failure is
missing; no start depends on them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

LOGGERS = ("vllm.v1.engine.core", "vllm.v1.executor", "vllm.v1.worker", "vllm.compilation")
"""The loggers with our handler. Not ``vllm`` itself, whose only handler formats its lines."""

MARKS: Mapping[str, tuple[str, int | None]] = {
    "Initializing a V1 LLM engine": ("core", None),
    "Starting to load model": ("load", None),
    "Model loading took": ("loaded", 1),
    "Warming up model for the compilation": ("compile_began", None),
    "Warming up done": ("compile_ended", None),
    "torch.compile took": ("compile", 0),
    "Graph capturing finished in": ("graphs", 0),
    "init engine (profile": ("init", 0),
}
"""Beginnings of a record's format string, each with its kind of mark (see ``serve_app.engines.start.Mark``)
and the index of the argument that holds the seconds."""

FAILURES = (
    "EngineCore failed to start",
    "WorkerProc failed to start",
    "EngineCore encountered a fatal error",
    "WorkerProc hit an exception",
)


class RecordFile(logging.Handler):
    """Appends the records that matter to a file, one JSON object per line. vLLM creates it from the logging
    configuration."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.INFO)
        self._path = Path(path)

    def emit(self, record: logging.LogRecord) -> None:
        entry = _entry(record)
        # A full disk or a removed folder must not stop an engine.
        if entry is not None:
            with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
                file.write(json.dumps(entry).encode() + b"\n")


def reason_of(error: BaseException) -> str:
    """Type and text in one line; for an error without text, such as a bare assertion, the line of code that
    raised it."""
    text = " ".join(str(error).split())
    frames = [] if text else traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {frames[-1].line if frames else text}"


def _entry(record: logging.LogRecord) -> dict[str, object] | None:
    text = str(record.msg)
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and text.startswith(FAILURES):
        return {"failure": reason_of(error)}
    for begin, (kind, position) in MARKS.items():
        if text.startswith(begin):
            seconds = _value(record.args, position)
            return {"mark": kind, "at": record.created, "seconds": seconds, "process": record.process}
    return None


def _value(arguments: object, position: int | None) -> float:
    if position is None or not isinstance(arguments, tuple) or len(arguments) <= position:
        return 0.0
    value = arguments[position]
    return float(value) if isinstance(value, int | float) else 0.0
