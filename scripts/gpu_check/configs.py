"""Every shipped GPU config: what vLLM makes of it on a pretended machine of eight H100, and its plan."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.peers.endpoint import ROOT

from gpu_check.contract import Bench, Finding, failed, finding

CONFIGS = ROOT / "config"
PRETENDED = ROOT / "tests" / "deployments" / "engine" / "vllm" / "test_on_pretended_gpus.py"
PLAN_S, TEST_S = 60.0, 200.0
PLANNED = ("--device", "H100", "--offline")
REASON_CHARACTERS = 1000
WRONG = ("failure", "error", "skipped")


def configs(bench: Bench) -> Iterator[Finding]:
    shipped = sorted(CONFIGS.glob("gpu-*.yaml"))
    for config in shipped:
        yield _plan(config)
    yield from _pretended(shipped, bench.folder / "tests.xml")


def _plan(config: Path) -> Finding:
    subject = f"plan of {config.name}"
    command = [sys.executable, "-m", "deployments.cli", "plan", str(config), *PLANNED]
    ran = _run(command, PLAN_S)
    if ran.returncode != 0:
        return failed(subject, ran.stderr[-REASON_CHARACTERS:])
    return finding(subject, reason=ran.stdout.strip().splitlines()[0])


def _pretended(shipped: list[Path], report: Path) -> Iterator[Finding]:
    """The tests that build each config's arguments, runner and CUDA graphs. No real GPU is shown to them, so
    that they are the same tests everywhere."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "gpu-", str(PRETENDED)]
    ran = _run([*command, f"--junitxml={report}"], TEST_S, CUDA_VISIBLE_DEVICES="")
    if not report.exists():
        yield failed("on pretended GPUs", (ran.stdout + ran.stderr)[-REASON_CHARACTERS:])
        return
    cases = list(ElementTree.parse(report).iter("testcase"))
    for config in shipped:
        own = [case for case in cases if f"[{config.name}]" in case.get("name", "")]
        wrong = [_name(case) for case in own if any(case.find(tag) is not None for tag in WRONG)]
        subject = f"{config.name} on pretended GPUs"
        if wrong or not own:
            yield failed(subject, "; ".join(wrong) or "no test names it")
        else:
            yield finding(subject, reason="; ".join(map(_name, own)))


def _name(case: ElementTree.Element) -> str:
    """``test_vllm_takes_the_settings[gpu-8b.yaml]`` as words."""
    return case.get("name", "").partition("[")[0].removeprefix("test_").replace("_", " ")


def _run(command: list[str], limit_s: float, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **env},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
