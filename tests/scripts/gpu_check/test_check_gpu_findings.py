"""What the checks make of what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.engine_server import Answer
from benchmarks.table import at_least, at_most
from benchmarks.vllm_load import Level
from gpu_check.contract import Bench, Verdict, finding, judged
from gpu_check.engines import arguments, settings
from gpu_check.machine import Machine, planned_device
from gpu_check.report import in_markdown, shown
from gpu_check.rest import memory
from gpu_check.runner import Result, read_findings
from gpu_check.serving import compared
from gpu_check.speculation import judgement, make_head, methods

from deployments.engine.vllm.arguments import GUARDED_SCHEDULER
from deployments.platform.gpus import read_gpus
from serve_app.machine import Gpu
from serve_app.settings import ModelSettings

H100 = ["NVIDIA H100 80GB HBM3", "580.65.06", "9.0", "81559"]
LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 256}


def machine(*gpus: Gpu) -> Machine:
    return Machine(gpus, 16, 128.0, {"vllm": "0.29.0"})


def bench(folder: Path, *gpus: Gpu) -> Bench:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    return Bench(str(folder / "model"), machine(*gpus), folder)


def answer(*tokens: int, tpot_s: float = 0.01) -> Answer:
    return Answer(0.0, 0.1, tpot_s, (), tokens)


def test_a_finding_passes_if_all_its_figures_meet_their_targets() -> None:
    met, missed = judged("pause", 3, "ms", at_most(3)), judged("speed", 1, "tok/s", at_least(2))
    assert finding("both", met).verdict is Verdict.PASS
    found = finding("both", met, missed, reason="a reason")
    assert (found.verdict, found.reason) == (Verdict.FAIL, "a reason; speed is not ≥ 2")
    assert shown(found) == "pause 3.00 ms (≤ 3), speed 1.00 tok/s (≥ 2); a reason; speed is not ≥ 2"
    assert "| both | fail |" in in_markdown({}, [Result(_check(), (found,), 2.0)])


def _check() -> object:
    from gpu_check.registry import CHECKS

    return CHECKS[0]


def test_half_a_line_of_a_killed_check_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "findings"
    file.write_bytes(b'{"subject": "one", "verdict": "pass"}\n{"subject": "tw')
    assert [each.subject for each in read_findings(file)] == ["one"]
    assert read_findings(tmp_path / "none") == ()


def test_a_gpu_is_found_in_the_plans_table() -> None:
    (gpu,) = read_gpus([H100])
    assert (gpu.driver, gpu.capability, round(gpu.memory_gib, 1)) == ("580.65.06", 9.0, 79.6)
    device = planned_device(machine(gpu))
    assert device is not None
    assert device.name == "H100"
    unknown = Gpu("NVIDIA Something", "600.1", 12.0, 100.0)
    assert planned_device(machine(unknown)) is None


@pytest.mark.parametrize(
    "row", [["NVIDIA GB10", "580.95", "12.1", "[N/A]"], ["NVIDIA", "with", "a", "comma", "9"], ["No devices"]]
)
def test_a_gpu_of_which_the_driver_does_not_say_all_is_left_out(row: list[str]) -> None:
    assert read_gpus([row]) == ()
    assert len(read_gpus([row, H100])) == 1


def test_speed_is_judged_on_a_gpu_and_failures_everywhere() -> None:
    bare, slow = Level(10, 20, 5, 100, 0), Level(19, 40, 5, 91, 0)
    assert compared(64, bare, slow, judge=True).verdict is Verdict.FAIL
    assert compared(256, bare, slow, judge=True).verdict is Verdict.PASS
    assert compared(64, bare, slow, judge=False).verdict is Verdict.PASS
    assert compared(64, bare, Level(19, 40, 5, 91, 1), judge=False).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("tokens", "drafted", "verdict"),
    [((1, 2, 3), 5, Verdict.PASS), ((1, 2, 4), 5, Verdict.FAIL), ((1, 2, 3), 0, Verdict.FAIL)],
)
def test_speculation_must_draft_and_change_no_answer(
    tokens: tuple[int, ...], drafted: int, verdict: Verdict
) -> None:
    found = judgement("ngram", [answer(1, 2, 3)], [answer(*tokens)], (drafted, 0))
    assert found.verdict is verdict


def test_a_replica_that_keeps_its_memory_while_asleep_fails() -> None:
    assert memory("GPU memory", (1.0, 11.0, 3.0, 11.0)).verdict is Verdict.PASS
    assert memory("GPU memory", (1.0, 11.0, 9.0, 11.0)).verdict is Verdict.FAIL
    assert memory("GPU memory", (1.0, 1.0, 1.0, 1.0)).verdict is Verdict.FAIL


def test_a_head_of_the_models_shape_is_made(tmp_path: Path) -> None:
    here = bench(tmp_path)
    head = make_head(here)
    assert head is not None
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["hidden_size"], config["num_hidden_layers"], config["draft_vocab_size"]) == (64, 1, 256)
    other = Bench("owner/name", machine(), tmp_path / "other")
    assert make_head(other) is None
    assert "eagle3" not in {method["method"] for method, _ in methods(other)}


def test_engines_get_the_arguments_that_the_settings_give_them(tmp_path: Path) -> None:
    (gpu,) = read_gpus([H100])
    for where in (bench(tmp_path, gpu), Bench(str(tmp_path / "model"), machine(), tmp_path / "cpu")):
        where.folder.mkdir(exist_ok=True)
        for method, guard in methods(where):
            model = settings(where, small=True, speculation={**method, "guard": guard})
            ModelSettings.model_validate(model)
            given = arguments(model)
            assert (given.get("scheduler_cls") == GUARDED_SCHEDULER) is guard
            assert given["speculative_config"]["method"] == method["method"]
            assert ("gpu_memory_utilization" in given) is where.on_gpu
