"""What vLLM's processes log of a start comes back to the replica that started them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.engine.start.log import CONFIG_PATH, SWITCH, EngineLog
from deployments.engine.start.record import RecordFile

CHILD = """
import logging
import vllm.logger
logger = logging.getLogger("vllm.v1.engine.core")
logger.info("Initializing a V1 LLM engine (v%s) with config: %s", "0.29", "…")
logging.getLogger("vllm.v1.worker.cpu_model_runner").info("Starting to load model %s...", "/models/x")
logger.info("init engine (profile, create kv cache, warmup model) took %.2f s", 4.5)
logger.info("something else took %.2f s", 9.0)
try:
    raise ValueError("no\\nroom")
except ValueError:
    logging.getLogger("vllm.v1.executor.multiproc_executor").exception("WorkerProc failed to start.")
try:
    raise RuntimeError("see stack trace for root cause.")
except RuntimeError:
    logger.exception("EngineCore failed to start.")
"""


@pytest.fixture
def log() -> Iterator[EngineLog]:
    log = EngineLog()
    yield log
    log.close()


def test_a_process_of_vllms_reports_its_marks_and_its_failure(log: EngineLog) -> None:
    with log.recording():
        environment = dict(os.environ)
    assert CONFIG_PATH not in os.environ
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    assert [(mark.kind, mark.seconds) for mark in log.marks()] == [
        ("core", 0.0),
        ("load", 0.0),
        ("init", 4.5),
    ]
    assert log.failure() == "ValueError: no room"
    assert "something else took 9.00 s" in done.stdout + done.stderr  # vLLM's own lines are still there


@pytest.mark.parametrize(("variable", "value"), [(CONFIG_PATH, "/own/logging.json"), (SWITCH, "0")])
def test_a_logging_configuration_of_the_users_is_left_alone(
    log: EngineLog, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with log.recording():
        assert os.environ.get(CONFIG_PATH) == (value if variable == CONFIG_PATH else None)


def test_nothing_was_recorded(log: EngineLog) -> None:
    assert log.marks() == []
    assert log.failure() is None


@pytest.mark.parametrize(
    ("text", "arguments", "seconds"),
    [
        ("Model loading took %s GiB memory and %.6f seconds", ("15.0", 7.5), 7.5),
        ("Graph capturing finished in %.0f secs, took %.2f GiB", (12, 0.5), 12.0),
        ("torch.compile took %.2f s in total", (3.25,), 3.25),
        ("torch.compile took long", (), 0.0),
    ],
)
def test_the_seconds_of_a_record_are_found(
    tmp_path: Path, text: str, arguments: tuple[object, ...], seconds: float
) -> None:
    path = tmp_path / "records"
    RecordFile(str(path)).emit(logging.LogRecord("vllm", logging.INFO, "", 1, text, arguments, None))
    assert json.loads(path.read_bytes())["seconds"] == seconds


def test_a_folder_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    record = logging.LogRecord("vllm", logging.INFO, "", 1, "Starting to load model", (), None)
    RecordFile(str(tmp_path / "gone" / "records")).emit(record)
