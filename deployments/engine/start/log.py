"""Gives an engine's replica the start-up times and errors that vLLM's own processes log.

vLLM runs in child processes of the replica. Their errors reach the replica only as "see root cause above",
and their times not at all; both are in vLLM's log. vLLM reads its logging configuration from the file that
``VLLM_LOGGING_CONFIG_PATH`` names. The replica writes such a file with vLLM's own handler
(``vllm.logger.DEFAULT_LOGGING_CONFIG``; check it when vLLM moves) and a second handler that keeps the few
records that matter here. Workers that Ray starts (GPUs) log separately: of their records, only those that
vLLM's engine core repeats are seen.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deployments.engine.start.record import LOGGERS, RecordFile
from serve_app.engines.start import Mark

CONFIG_PATH = "VLLM_LOGGING_CONFIG_PATH"
SWITCH = "VLLM_CONFIGURE_LOGGING"

POINTS_ELSEWHERE = ("root cause", "background process")
"""Words that mark an error as a report of another process's failure."""


class EngineLog:
    """The records of one start, in a temporary folder that ``close`` removes."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="promptly-engine-"))
        self._records = self._folder / "records"

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Make vLLM processes that start in this context write to this log. Does nothing if the environment
        has its own logging configuration or turns vLLM's off. Imports vLLM."""
        if os.environ.get(CONFIG_PATH) or os.environ.get(SWITCH, "1") != "1":
            yield
            return
        os.environ[CONFIG_PATH] = str(self._write_configuration())
        try:
            yield
        finally:
            os.environ.pop(CONFIG_PATH, None)

    def marks(self) -> list[Mark]:
        """The marks recorded so far, in order of time."""
        found = [
            Mark(entry["mark"], entry["at"], entry["seconds"], entry["process"])
            for entry in self._entries()
            if "mark" in entry
        ]
        return sorted(found, key=lambda mark: mark.at)

    def failure(self) -> str | None:
        """The first error that names the actual cause, as type and text; ``None`` if there is none."""
        failures = (str(entry["failure"]) for entry in self._entries() if "failure" in entry)
        return next((failure for failure in failures if not points_elsewhere(failure)), None)

    def close(self) -> None:
        """Remove the folder. Call it only when no more vLLM processes will start: they need the configuration
        in it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_configuration(self) -> Path:
        from vllm.logger import DEFAULT_LOGGING_CONFIG

        config: dict[str, Any] = copy.deepcopy(DEFAULT_LOGGING_CONFIG)
        name = f"{RecordFile.__module__}.{RecordFile.__name__}"
        config["handlers"]["promptly"] = {"class": name, "path": str(self._records)}
        for logger in LOGGERS:
            config["loggers"][logger] = {"handlers": ["promptly"]}
        path = self._folder / "logging.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def _entries(self) -> Iterator[dict[str, Any]]:
        if not self._records.is_file():
            return
        for line in self._records.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # a process was killed while writing
                yield json.loads(line)


def points_elsewhere(reason: str) -> bool:
    """Whether an error's text only reports another process's failure."""
    return any(words in reason for words in POINTS_ELSEWHERE)
