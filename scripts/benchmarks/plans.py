"""Plans against what others have measured, and plans of the shipped GPU configs; nothing is started.

    cd scripts; python -m benchmarks --only plans

For each published decode time (``published.py``) the report has the plan's time over it, and the figures how
far the worst is off. A config counts as planned if the plan finds no problem on an H100, from the record of
models alone: whole CUDA graphs, the second model runner, asynchronous scheduling. What vLLM itself makes of
these configs on a pretended machine is a test (``tests/deployments/engine/vllm/test_on_pretended_gpus.py``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.options import Options
from benchmarks.peers.endpoint import ROOT
from benchmarks.published import FITTED, FORECAST, FOUR_BIT_EXPERTS, VERY_SMALL, Case
from benchmarks.table import Figure, at_least, at_most, write_report
from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from serve_app.model_store import ModelStore
from serve_app.planning.speed import UNCERTAINTY
from serve_app.settings import load_file

CONFIGS = ROOT / "config"
DEVICE = "H100"
EXPECTED = (2, "full_and_piecewise", True)
"""Model runner, CUDA graphs, whether scheduling is asynchronous."""

GROUPS = {"fitted": FITTED, "forecast": FORECAST}
OUTSIDE = (FOUR_BIT_EXPERTS, VERY_SMALL)


def run(options: Options) -> list[Figure]:
    figures = [*published(), shipped(sorted(CONFIGS.glob("gpu-*.yaml")))]
    write_report(options.out, "plans", figures, about={"target": f"within {100 * UNCERTAINTY:.0f} %"})
    return figures


def published() -> Iterator[Figure]:
    for name, cases in GROUPS.items():
        yield Figure(f"{len(cases)} published decode times, {name}: worst", "% off", (worst(cases),), LIMIT)
    for name, cases in (*GROUPS.items(), ("outside", OUTSIDE)):
        for case in cases:
            yield Figure(f"plan over published, {name}: {case.title}", "×", (case.ratio(),))


LIMIT = at_most(100 * UNCERTAINTY)


def worst(cases: Sequence[Case]) -> float:
    """How far the expected time is from the published one, in percent of that."""
    return max(100 * abs(case.ratio() - 1) for case in cases)


def shipped(configs: Sequence[Path]) -> Figure:
    planned = sum(map(is_planned, configs))
    return Figure(f"shipped GPU configs planned, of {len(configs)}", "", (planned,), at_least(len(configs)))


def is_planned(config: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        library = ModelLibrary(ModelStore(Path(folder)), offline=True, recorded=True)
        plans, problems = plan_applications(load_file(config), library, Hardware(name=DEVICE))
    found = [plan.request.execution for plan in plans]
    return (
        bool(plans)
        and not problems
        and all(each is not None and (each.runner, each.graphs, each.is_async) == EXPECTED for each in found)
    )
