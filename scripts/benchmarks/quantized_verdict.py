"""Is a quantised model worse than its original? Both run in vLLM on this machine, and are asked in turn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.engine_server import MODEL, engine_server
from benchmarks.quantized_speed import CPU_ARGUMENTS, GPU_ARGUMENTS
from deployments.evaluation.command import Asked, evaluate
from deployments.evaluation.runner import Plan
from serve_app.evaluation.report import Choices, Report
from serve_app.evaluation.suite import Suite
from serve_app.evaluation.target import BASELINE, CANDIDATE, Target
from serve_app.evaluation.writers.documents import as_json
from serve_app.evaluation.writers.page import as_page
from serve_app.evaluation.writers.tables import markdown

FILES = {"evaluation.md": markdown, "evaluation.json": as_json, "evaluation.html": as_page}


def judged(before: Path, after: Path, suite: Suite, repeats: int = 1, seed: int = 0) -> Report:
    """The report of `promptly eval`, which is also written to files beside the weights of ``after``.

    Raises:
        PeerError: vLLM cannot serve one of the two models here.
        RunError: one of the two models answers nothing, or a scorer cannot judge.
    """
    arguments = GPU_ARGUMENTS if Path("/dev/nvidia0").exists() else CPU_ARGUMENTS
    with ExitStack() as servers:
        targets = [
            Target(role, MODEL, servers.enter_context(engine_server(folder, arguments)).url)
            for role, folder in ((BASELINE, before), (CANDIDATE, after))
        ]
        # Without a tool-call parser vLLM refuses tools; which parser fits depends on the model's deployment.
        cases = [case for case in suite.cases if "tools" not in case.settings]
        plan = Plan(cases, repeats, seed=seed)
        report = evaluate(
            Asked(f"{suite.name}: {before.name} → {after.name}", targets, plan, Choices(seed=seed))
        )
    for name, writer in FILES.items():
        (after / name).write_text(writer(report), encoding="utf-8")
    return report
