"""What vLLM's own processes say of their start, for the replica that started them.

An engine runs in processes below its replica. What they meet there reaches the replica only as "see root
cause above"; how long they took, not at all. Both are in vLLM's log. vLLM reads its logging configuration
from the file that ``VLLM_LOGGING_CONFIG_PATH`` names: the replica writes one that has vLLM's own handler
(``vllm.logger.DEFAULT_LOGGING_CONFIG``, to be looked at when vLLM moves) and, beside it, one that keeps the
few records that matter here. Workers that Ray starts (GPUs) log for themselves: of those, only what the
engine's core repeats is seen.
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
"""In an error that only says that another process failed."""


class EngineLog:
    """The records of one start, in a folder of its own until ``close``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="promptly-engine-"))
        self._records = self._folder / "records"

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Processes that start meanwhile write to this log; nothing happens where the environment has a
        logging configuration of its own, or turns vLLM's off. Imports vLLM."""
        if os.environ.get(CONFIG_PATH) or os.environ.get(SWITCH, "1") != "1":
            yield
            return
        os.environ[CONFIG_PATH] = str(self._write_configuration())
        try:
            yield
        finally:
            os.environ.pop(CONFIG_PATH, None)

    def marks(self) -> list[Mark]:
        """What was noted, in the order of its times."""
        found = [
            Mark(entry["mark"], entry["at"], entry["seconds"], entry["process"])
            for entry in self._entries()
            if "mark" in entry
        ]
        return sorted(found, key=lambda mark: mark.at)

    def failure(self) -> str | None:
        """The first error that says what happened, as type and text; ``None`` if none does."""
        failures = (str(entry["failure"]) for entry in self._entries() if "failure" in entry)
        return next((failure for failure in failures if not points_elsewhere(failure)), None)

    def close(self) -> None:
        """vLLM's processes that are still to start would not find their configuration: call it when none
        will."""
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
            with contextlib.suppress(ValueError):  # a process that was killed as it wrote
                yield json.loads(line)


def points_elsewhere(reason: str) -> bool:
    """Whether an error's text only says that another process failed."""
    return any(words in reason for words in POINTS_ELSEWHERE)
