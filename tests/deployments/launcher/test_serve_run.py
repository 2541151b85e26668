"""The process that deploys: it imports Serve and waits until it is told that Ray is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deployments.launcher import processes

COMMAND = [sys.executable, "-m", "deployments.launcher.serve_run", "--help"]


def test_it_runs_serve_run_when_it_is_told(tmp_path: Path) -> None:
    child = processes.spawn("serve run", COMMAND, os.environ, tmp_path / "log", waits=True)
    assert child.process.poll() is None
    child.go_on()
    assert child.process.wait(60) == 0
    assert "Usage: serve run" in child.log.read_text("utf-8")


def test_it_deploys_nothing_when_its_launcher_is_gone() -> None:
    done = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_child_that_ended_meanwhile_is_no_error_of_its_own(tmp_path: Path) -> None:
    child = processes.spawn("gone", ["true"], os.environ, tmp_path / "log", waits=True)
    child.process.wait(60)
    child.go_on()
