"""One check that fails, hangs or dies takes nothing from the others, and leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.peers.endpoint import ROOT
from gpu_check.contract import Check, Verdict
from gpu_check.registry import CHECKS as SHIPPED
from gpu_check.runner import Limits, run_checks

COMMAND = ROOT / "scripts" / "check_gpu.py"
WAIT_S = 300.0


def start(out: Path, *checks: str, **env: str) -> subprocess.Popen[str]:
    """The command on the scripted checks. No program is on its PATH, so it finds no GPU on any machine."""
    paths = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
    variables = {**os.environ, "PYTHONPATH": paths, "PATH": str(out.parent), "PIDS_FILE": str(out / "pids")}
    out.mkdir(exist_ok=True)
    given = ["--registry", "scripted_checks", "--model", "a/model", "--out", str(out), "--stop-s", "2"]
    return subprocess.Popen(
        [sys.executable, str(COMMAND), *given, "--only", *checks],
        env=variables | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(out: Path, *checks: str) -> tuple[int, dict[str, list[dict[str, Any]]], str]:
    """Its exit status, the findings of the report by check, and what it printed."""
    process = start(out, *checks)
    output, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, findings(out), output


def findings(out: Path) -> dict[str, list[dict[str, Any]]]:
    document = json.loads((out / "check_gpu.json").read_text(encoding="utf-8"))
    return {each["check"]: each["findings"] for each in document["checks"]}


def verdicts(found: Sequence[dict[str, Any]]) -> list[str]:
    return [each["verdict"] for each in found]


def until(file: Path) -> str:
    deadline = time.monotonic() + WAIT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"there is no {file}"
        time.sleep(0.05)  # another process, which sends no event
    return file.read_text(encoding="utf-8")


def test_what_passes_and_what_is_left_out_is_no_failure(tmp_path: Path) -> None:
    status, found, output = run(tmp_path / "out", "passing", "gpu")
    assert status == 0, output
    assert verdicts(found["passing"]) == ["pass"]
    assert found["passing"][0]["figures"][0]["target"] == "≤ 3"
    assert verdicts(found["gpu"]) == ["left out"]
    assert "no NVIDIA GPU" in found["gpu"][0]["reason"]
    assert "pass: 1, fail: 0, left out: 1" in output


def test_each_way_to_fail_is_told_and_the_others_still_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    status, found, output = run(out, "missing", "raising", "hanging", "dying", "silent", "passing")
    assert status == 1
    assert found["missing"][0]["reason"] == "time is not ≤ 3"
    assert verdicts(found["raising"]) == ["pass", "fail"]
    assert "ValueError: the engine did not start" in found["raising"][1]["reason"]
    assert verdicts(found["hanging"]) == ["pass", "fail"]
    assert found["hanging"][1]["reason"].startswith("not done within")
    assert verdicts(found["dying"]) == ["pass", "fail"]
    assert "SIGKILL" in found["dying"][1]["reason"]
    assert found["silent"][0]["reason"].startswith("it found nothing")
    assert verdicts(found["passing"]) == ["pass"]
    for name in found:
        assert f"## {name} (" in (out / "README.md").read_text(encoding="utf-8")
        assert name in output
    for pid in map(int, (out / "pids").read_text(encoding="utf-8").split()):
        assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(("patience", "verdict"), [(1.0, Verdict.FAIL), (100.0, Verdict.LEFT_OUT)])
def test_a_check_that_ends_with_the_run_has_not_failed(patience: float, verdict: Verdict) -> None:
    """It got less time than it may take."""
    check = Check("long", "It goes on.", 0.1, lambda bench: iter(()))
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    (result,) = run_checks([check], lambda *_: sleeping, Limits(0.5, patience, 1.0), has_gpu=False)
    assert [each.verdict for each in result.findings] == [verdict]


def test_ctrl_c_writes_the_report_so_far_and_ends_the_check(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(out, "passing", "tidy", "gpu")
    (pid,) = map(int, until(out / "pids").split())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, output
    found = findings(out)
    assert verdicts(found["passing"]) == ["pass"]
    assert verdicts(found["tidy"]) == ["pass", "left out"]
    assert verdicts(found["gpu"]) == ["left out"]
    assert not psutil.pid_exists(pid)
    assert (out / "pids.tidied").exists()


def test_a_name_that_no_check_has_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path / "out", "passing", "speling")
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "--only: speling: expected some of passing, missing" in output


def test_all_budgets_together_are_the_time_of_a_run() -> None:
    assert sum(check.budget_s for check in SHIPPED) <= 25 * 60
    assert len({check.name for check in SHIPPED}) == len(SHIPPED)


@pytest.mark.parametrize("check", SHIPPED, ids=lambda check: check.name)
def test_a_check_says_what_it_shows(check: Any) -> None:
    assert check.shows.endswith(".")
