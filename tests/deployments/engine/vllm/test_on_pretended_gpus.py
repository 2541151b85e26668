"""What vLLM would do with GPU settings, on a pretended machine with eight H100: its own configuration, its
model runner and the CUDA graphs that it would capture. Nothing is loaded, and no kernel runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.pretended_cuda import on_pretended_h100

from serve_app.planning.execution import execution, sends_depths
from serve_app.settings import ModelSettings

ROOT = Path(__file__).parents[4]
SHIPPED = sorted((ROOT / "config").glob("gpu-*.yaml"))
EAGLE3 = {"method": "eagle3", "model": "AngelSlim/Qwen3-8B_eagle3", "num_speculative_tokens": 3}
MIXED = [{"requests": 1, "tokens": 3}, {"requests": 9, "tokens": 2}, {"requests": 17, "tokens": 0}]
NEVER_SHALLOW = [{"requests": 1, "tokens": 3}, {"requests": 9, "tokens": 2}]
TOLD = {"depths 3, 1, 0": [[1, 8, 3], [9, 16, 1], [17, 32, 0]], "depths 3, 2": [[1, 8, 3], [9, 32, 2]]}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
SMALL = {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 4}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def qwen(source: str = "Qwen/Qwen3-8B", **engine: Any) -> dict[str, Any]:
    return {"id": "m", "source": source, "engine": {"max_model_len": 8192, "max_num_seqs": 32} | engine}


OTHERS: dict[str, dict[str, Any]] = {
    "no speculation": qwen(),
    "eager": qwen(enforce_eager=True),
    "-O1": qwen(optimization_level=1),
    "eagle3": qwen(speculation=EAGLE3),
    "eagle3, unguarded": qwen(speculation=EAGLE3 | {"guard": False}),
    "eagle3, mixed depths": qwen(speculation=EAGLE3 | {"depth_by_load": MIXED}),
    "eagle3, depths 3 and 2": qwen(speculation=EAGLE3 | {"depth_by_load": NEVER_SHALLOW}),
    "eagle3, depths 3 and 2, unguarded": qwen(
        speculation=EAGLE3 | {"depth_by_load": NEVER_SHALLOW, "guard": False}
    ),
    "eagle3, mixed depths, unguarded": qwen(speculation=EAGLE3 | {"depth_by_load": MIXED, "guard": False}),
    "eagle3, first runner": qwen(
        speculation=EAGLE3 | {"depth_by_load": MIXED}, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}
    ),
    "offload over two": qwen(tensor_parallel_size=2, placement="strict_pack", kv_offload={"size_gib": 16.0}),
    "mtp": qwen(
        "deepseek-ai/DeepSeek-V3",
        tensor_parallel_size=8,
        enable_expert_parallel=True,
        options={"trust_remote_code": False},
        speculation={"method": "mtp", "num_speculative_tokens": 1},
    ),
    "ngram": qwen(speculation=NGRAM),
    "ngram, mixed depths": qwen(speculation=NGRAM | {"depth_by_load": MIXED}),
    "draft model": qwen(LLAMA, speculation=SMALL),
    "draft model, mixed depths": qwen(LLAMA, speculation=SMALL | {"depth_by_load": MIXED}),
}


def shipped(path: Path) -> dict[str, Any]:
    (application,) = yaml.safe_load(path.read_text(encoding="utf-8"))["applications"]
    (model,) = application["args"]["models"]
    return model  # type: ignore[no-any-return]


CASES = {path.name: shipped(path) for path in SHIPPED} | OTHERS


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    told = {name: OTHERS["eagle3"] | {"told": depths} for name, depths in TOLD.items()}
    return on_pretended_h100(tmp_path_factory.mktemp("store"), CASES | told)


@pytest.mark.parametrize("name", CASES)
def test_vllm_takes_the_settings_and_its_graphs_are_possible(
    found: dict[str, dict[str, Any]], name: str
) -> None:
    made = found[name]
    assert "error" not in made
    assert bool(made["captured"]) == (made["graphs"] != "none")
    most = ModelSettings.model_validate(CASES[name]).managed_engine.max_num_seqs
    assert most is not None
    for graph in made["captured"]:
        assert graph["tokens"] >= 1, graph
        assert graph["requests"] is None or 1 <= graph["requests"] <= most, graph
        assert graph["length"] is None or graph["length"] * graph["requests"] == graph["tokens"], graph


@pytest.mark.parametrize("name", CASES)
def test_the_plan_names_what_vllm_chooses(found: dict[str, dict[str, Any]], name: str) -> None:
    engine = ModelSettings.model_validate(CASES[name]).managed_engine
    planned = execution(engine)
    assert planned is not None
    made = found[name]
    assert (planned.runner, planned.graphs, planned.is_async) == (
        made["runner"],
        made["graphs"],
        made["is_async"],
    )
    assert sends_depths(engine) == made["tells_depths"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_configs_get_the_second_runner_whole_graphs_and_asynchronous_scheduling(
    found: dict[str, dict[str, Any]], path: Path
) -> None:
    made = found[path.name]
    assert (made["runner"], made["graphs"], made["is_async"]) == (2, "full_and_piecewise", True)


def test_the_second_runner_would_be_told_of_mixed_depths_at_the_price_of_its_start(
    found: dict[str, dict[str, Any]],
) -> None:
    """Why it is never told. If this fails, vLLM has mended it, and ``sends_depths`` may send them."""
    graphs = found["depths 3, 1, 0"]["if_told"]
    assert any(graph["requests"] is not None and graph["requests"] < 1 for graph in graphs)
    assert found["depths 3, 2"]["error"].startswith("ZeroDivisionError")
    for name in ("eagle3, mixed depths", "eagle3, depths 3 and 2"):
        assert not found[name]["tells_depths"]
