"""What the first hour on a GPU must show, unattended: `make check-gpu`, at most 25 minutes on one H100.

    python scripts/check_gpu.py [--model FOLDER_OR_HUB_ID] [--only environment plan ...] [--out bench/gpu]

The checks are in `scripts/gpu_check/`. Each runs in a process of its own with a budget of seconds; one that
fails or hangs does not stop the others, and everything that it started is ended. Without a GPU all run that
need none, and the report says what was left out. Ctrl-C writes the report so far. Exit status: 0, 1 if a
check failed, 130 after Ctrl-C. Nothing is downloaded unless `--model` names a model of the hub.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.vllm_load import SOURCE
from gpu_check import report
from gpu_check.contract import Check, Verdict
from gpu_check.machine import read_machine
from gpu_check.runner import STOP_S, Interrupted, Limits, Result, run_checks

from deployments.launcher.processes import become_subreaper
from serve_app.model_store import ModelStore, default_cache_dir

ROOT = Path(__file__).parents[1]
MINUTES = 25.0
CPU_PATIENCE = 3.0
"""An engine on two CPU cores starts so many times more slowly than on a GPU machine."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=SOURCE, help=f"a folder or a hub id; default: {SOURCE}")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these checks")
    parser.add_argument("--minutes", type=float, default=None, help=f"of the whole run; default: {MINUTES:g}")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "gpu", help="folder of the report")
    parser.add_argument("--registry", default="gpu_check.registry", help=argparse.SUPPRESS)
    parser.add_argument("--stop-s", type=float, default=STOP_S, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    checks = chosen(options.registry, options.only)
    become_subreaper()
    for ending in (signal.SIGTERM, signal.SIGINT):  # a shell starts what it does not wait for without SIGINT
        signal.signal(ending, signal.default_int_handler)
    machine = read_machine()
    patience = 1.0 if machine.has_gpu else CPU_PATIENCE
    limits = Limits((options.minutes or MINUTES * patience) * 60, patience, options.stop_s)
    model = ModelStore(default_cache_dir()).resolve(options.model)
    about = {**machine.lines(), "model": model}
    began = time.monotonic()
    told: list[Result] = []

    def command(check: Check, folder: Path) -> list[str]:
        return [
            *[sys.executable, "-m", "gpu_check.single"],
            *[options.registry, check.name, model, str(folder)],
        ]

    def record(results: Sequence[Result]) -> None:
        for result in results[len(told) :]:
            print("\n".join(report.lines(result)), flush=True)
        told[:] = results
        took = {"took": f"{(time.monotonic() - began) / 60:.1f} min"}
        report.write(options.out, about | took, results)

    try:
        results = run_checks(checks, command, limits, has_gpu=machine.has_gpu, record=record)
    except Interrupted as interrupted:
        record(interrupted.results)
        print(f"interrupted; the report so far: {options.out / report.MARKDOWN}")
        return 130
    print(f"{report.summary(results)}; the report: {options.out / report.MARKDOWN}")
    return 1 if any(result.count(Verdict.FAIL) for result in results) else 0


def chosen(registry: str, only: Sequence[str] | None) -> list[Check]:
    """Raises: SystemExit: a name that no check has."""
    checks: Sequence[Check] = importlib.import_module(registry).CHECKS
    names = [check.name for check in checks]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        sys.exit(f"--only: {', '.join(unknown)}: expected some of {', '.join(names)}")
    return [check for check in checks if only is None or check.name in only]


if __name__ == "__main__":
    sys.exit(main())
