"""Wrong settings, in each way to start: one message, before any model loads."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from support.server import BIN, ROOT, ServerSlot, environment, heed_sigint, stop

from deployments.launcher.ports import free_port

MESSAGE = "models[0].engine.dtyp = 'bfloat16': unknown key; did you mean 'dtype'?"


@pytest.fixture
def wrong_config(tmp_path: Path, slot: ServerSlot) -> Path:
    slot.stop()
    document = yaml.safe_load((ROOT / "config" / "local.yaml").read_text())
    document["http_options"]["port"] = free_port()
    engine = document["applications"][0]["args"]["models"][0]["engine"]
    engine["dtyp"] = engine.pop("dtype")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_make_serve_ends_with_the_message_before_ray_starts(wrong_config: Path) -> None:
    command = [sys.executable, "-m", "deployments.cli", "serve", str(wrong_config)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"config.yaml: {MESSAGE}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Ray started" not in done.stdout


def test_serve_run_says_it_and_loads_nothing(wrong_config: Path) -> None:
    log = wrong_config.with_name("log")
    command = [str(BIN / "serve"), "run", wrong_config.name]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=wrong_config.parent,
            env=environment(RAY_ADDRESS="local", PYTHONPATH=str(ROOT)),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=heed_sigint,  # noqa: PLW1509  # one call, no locks
        )
    try:
        deadline = time.monotonic() + 120
        while f"applications[].args: {MESSAGE}" not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            time.sleep(0.25)
    finally:
        status = stop(process)
    assert status in (0, -signal.SIGINT)
    assert "Started vLLM engine" not in log.read_text(errors="replace")
