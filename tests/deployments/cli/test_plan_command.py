"""``promptly plan``: a config file in, a plan and an exit status out; nothing is started."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import model_configs as configs

from deployments.cli.main import main
from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from serve_app.model_store import ModelStore
from serve_app.settings import load_file

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "config"
TRACE_HEAD = "t_s,input_tokens,output_tokens\n"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    """A cache folder with the configs of well-known models, and no weights."""
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "cache"))
    store = ModelStore(tmp_path / "cache")
    for source, config in configs.SOURCES.items():
        configs.write_model(store.folder(source), config)
    return store


def config_file(tmp_path: Path, *models: dict[str, Any]) -> Path:
    document = {
        "http_options": {"host": "127.0.0.1"},
        "applications": [{"import_path": "serve_app.app:build", "args": {"models": list(models)}}],
    }
    path = tmp_path / "app.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def managed(source: str = "meta-llama/Llama-3.1-8B-Instruct", **engine: Any) -> dict[str, Any]:
    return {"id": "m", "source": source, "engine": engine}


@pytest.mark.usefixtures("store")
def test_a_plan_is_printed_and_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config_file(tmp_path, managed(max_model_len=16384))

    assert main(["plan", str(path), "--device", "H100", "--rate", "2", "--price", "2.5", "--gpus", "1"]) == 0
    shown = capsys.readouterr()
    assert "1 x H100" in shown.out
    assert "per million tokens" in shown.out
    assert shown.err == ""


@pytest.mark.usefixtures("store")
def test_each_problem_is_one_line_with_file_setting_and_a_value_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = managed(tensor_parallel_size=3, max_model_len=200_000, quantization="awq")
    path = config_file(tmp_path, wrong)

    assert main(["plan", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        f"{path}: models[0].engine.tensor_parallel_size",
        f"{path}: models[0].engine.max_model_len",
        f"{path}: models[0].engine.quantization",
    ]
    assert "use at most 131072" in lines[1]


@pytest.mark.usefixtures("store")
def test_replicas_are_held_against_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config_file(tmp_path, managed(max_model_len=16384) | {"replicas": 5})

    assert main(["plan", str(path), "--device", "H100", "--gpus", "4"]) == 1
    assert "use at most 4" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_an_unknown_device_lists_those_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(config_file(tmp_path, managed())), "--device", "abacus"]) == 1
    assert "H200" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_model_folder_that_does_not_exist_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(config_file(tmp_path, managed("/nowhere/model")))]) == 1
    assert "models[0].source = '/nowhere/model': no such folder" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_model_that_is_not_here_is_said_when_the_hub_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config_file(tmp_path, managed("owner/missing"))
    assert main(["plan", str(path), "--offline"]) == 1
    assert "the hub is off" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_wrong_settings_are_said_as_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(config_file(tmp_path, managed(tensor_paralel_size=2)))]) == 1
    assert "tensor_parallel_size" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_trace_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE_HEAD + "".join(f"{second},1000,50\n" for second in range(60)), encoding="utf-8")
    path = config_file(tmp_path, managed(max_model_len=16384))

    assert main(["plan", str(path), "--device", "H100", "--trace", str(trace)]) == 0
    assert "60 requests in 59 s" in capsys.readouterr().out
    assert main(["plan", str(path), "--trace", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"), [("--rate", "0"), ("--share", "2"), ("--price", "-1"), ("--ttft-ms", "x")]
)
def test_numbers_out_of_range_are_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "config.yaml", option, value])
    assert option in capsys.readouterr().err


def test_upstreams_alone_load_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(CONFIGS / "upstreams.yaml")]) == 0
    assert "nothing to plan" in capsys.readouterr().out


SHIPPED = [
    ("local.yaml", None, 0),
    ("gpu-8b.yaml", "L4", 1),
    ("gpu-70b-tp4.yaml", "H100", 16),
    ("gpu-8x.yaml", "H100", 8),
]


@pytest.mark.parametrize(("name", "device", "gpus"), SHIPPED, ids=[each[0] for each in SHIPPED])
def test_the_shipped_configs_pass(store: ModelStore, name: str, device: str | None, gpus: int) -> None:
    applications = load_file(CONFIGS / name)
    library = ModelLibrary(store, offline=True, recorded=True)
    plans, problems = plan_applications(applications, library, Hardware(name=device))
    assert problems == []
    assert all(plan.memory.tokens for plan in plans)
    assert sum(plan.max_replicas * plan.request.devices for plan in plans if not plan.request.on_cpu) <= gpus


@pytest.mark.parametrize("name", [each[0] for each in SHIPPED if each[0] != "local.yaml"])
def test_a_shipped_gpu_config_is_planned_where_no_hub_can_be_reached(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an empty machine, by the record of the models that the configs name."""
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert main(["plan", str(CONFIGS / name), "--device", "H100", "--offline"]) == 0
    shown = capsys.readouterr().out
    assert "vLLM: second model runner, CUDA graphs full_and_piecewise, asynchronous scheduling" in shown
    assert "from Promptly's record of 20" in shown
    held = re.search(r"KV cache +[\d.]+(.*)\n", shown)
    assert held
    assert held[1] == "  at most: what the second runner reserves was not measured"
    assert "an estimate, ± 25 %" in shown


def documented() -> list[tuple[str, str]]:
    """The table's rows in docs/engines.md, each with its command."""
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^(\| \d+ \|)(.*)$", page, re.MULTILINE))
    commands = re.findall(r"^# (\d+)\npromptly (.*)$", page, re.MULTILINE)
    assert len(rows) == len(commands) >= 12
    return [(rows[f"| {number} |"], command) for number, command in commands]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("row", "command"), documented(), ids=lambda value: value[:24])
def test_the_documented_settings_pass_with_the_documented_numbers(
    row: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command), "--offline"]) == 0
    shown = capsys.readouterr().out
    held = re.search(r"holds ([\d,]+) tokens: ([\d.]+) requests", shown)
    alone = re.search(r"per token (.*?) alone", shown)
    prefill = re.search(r"prefill (.*?) per", shown)
    assert held
    assert alone
    assert prefill
    assert f"| {held[1]} ({held[2]}) | {alone[1]}, {prefill[1]} |" in row


def test_the_command_needs_neither_ray_nor_vllm_nor_torch() -> None:
    code = (
        "import sys; from deployments.cli.main import main; main(['plan', 'config/upstreams.yaml']); "
        "sys.exit(any(name in sys.modules for name in ('ray', 'vllm', 'torch', 'transformers')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("accelerator", "device", "said"),
    [
        ("cpu", "H100", "runs on CPUs (engine.accelerator: cpu); plan it with --set engine.accelerator=gpu"),
        ("gpu", "cpu", "runs on GPUs (engine.accelerator: gpu); plan it with --set engine.accelerator=cpu"),
        ("cpu", "gpu", "--device gpu: expected one of: cpu, "),
        ("gpu", "gpu", "--device gpu: expected one of: cpu, "),
    ],
)
def test_a_device_of_another_kind_than_the_engines_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accelerator: str, device: str, said: str
) -> None:
    path = config_file(tmp_path, managed(accelerator=accelerator, max_model_len=2048))
    assert main(["plan", str(path), "--device", device]) == 1
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.usefixtures("store")
def test_the_cpu_of_this_machine_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config_file(tmp_path, managed(accelerator="cpu", max_model_len=2048))
    main(["plan", str(path)])
    unnamed = capsys.readouterr()
    main(["plan", str(path), "--device", "cpu"])
    assert capsys.readouterr() == unnamed


def test_what_is_foretold_can_be_recorded_by_prometheus(tmp_path: Path, store: ModelStore) -> None:
    path, rules = config_file(tmp_path, managed(max_model_len=16384, max_num_seqs=64)), tmp_path / "plan.yml"
    assert main(["plan", str(path), "--device", "H100", "--rules", str(rules)]) == 0
    plans, problems = plan_applications(load_file(path), ModelLibrary(store), Hardware("H100"))
    assert not problems
    (plan,) = plans
    assert plan.speed is not None
    full_s = plan.speed.decode_step_s(64, 1000)
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    found = {
        (rule["record"], rule["labels"].get("batch")): float(rule["expr"][len("vector(") : -1])
        for rule in group["rules"]
    }
    assert found == {
        ("promptly:planned_kv_cache_tokens", None): pytest.approx(plan.memory.tokens, rel=1e-4),
        ("promptly:planned_time_per_output_token_seconds", "1"): pytest.approx(
            plan.speed.decode_step_s(1, 1000), rel=1e-4
        ),
        ("promptly:planned_time_per_output_token_seconds", "64"): pytest.approx(full_s, rel=1e-4),
        ("promptly:planned_output_tokens_per_second", None): pytest.approx(64 / full_s, rel=1e-4),
    }
    assert {rule["labels"]["model"] for rule in group["rules"]} == {"m"}


@pytest.mark.usefixtures("store")
def test_a_device_that_is_not_known_has_no_rules_of_speed(tmp_path: Path) -> None:
    path, rules = config_file(tmp_path, managed()), tmp_path / "plan.yml"
    assert main(["plan", str(path), "--rules", str(rules)]) == 0
    assert yaml.safe_load(rules.read_text())["groups"][0]["rules"] == []


@pytest.mark.usefixtures("store")
def test_rules_that_cannot_be_written_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "nowhere" / "plan.yml"
    arguments = ["plan", str(config_file(tmp_path, managed())), "--device", "H100", "--rules", str(target)]
    assert main(arguments) == 1
    assert str(target) in capsys.readouterr().err
