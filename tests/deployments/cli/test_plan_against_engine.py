"""What ``promptly plan`` says a CPU engine will hold, against what the engine says once it has started."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.engine_figures import planned_memory
from benchmarks.engine_server import engine_memory, engine_server
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS
from support.tiny_llama import write_tiny_llama

from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from deployments.engine.vllm.arguments import engine_arguments
from serve_app.model_store import ModelStore
from serve_app.settings import load_file

LOCAL = Path(__file__).parents[3] / "config" / "local.yaml"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_the_plan_of_the_local_config_is_what_its_engine_holds(prepared_models: ModelStore) -> None:
    """With speculation, as `make serve` starts it."""
    settings = load_file(LOCAL)
    (plan,), problems = plan_applications(settings, ModelLibrary(prepared_models, offline=True), Hardware())
    (model,) = settings[0].models
    with engine_server(prepared_models.folder(SMOLLM2), engine_arguments(model, prepared_models)) as endpoint:
        found = engine_memory(endpoint)
    assert problems == []
    assert plan.memory.tokens == found.kv_tokens == 46_592
    assert plan.memory.weights == pytest.approx(found.weights + found.copies, rel=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_plan_of_a_tiny_model_is_what_its_engine_holds(
    tmp_path: Path, prepared_models: ModelStore, dtype: str
) -> None:
    """Stored in 32 bits. Nearly all of it is an embedding, which CPUs may hold packed as well."""
    folder = write_tiny_llama(tmp_path / "tiny", prepared_models.folder(SMOLLM2))
    arguments = {**ENGINE_ARGUMENTS, "max_model_len": 2048, "dtype": dtype}
    planned = planned_memory(folder, arguments)
    with engine_server(folder, arguments) as endpoint:
        found = engine_memory(endpoint)
    assert planned.kv_tokens == pytest.approx(found.kv_tokens, rel=0.1)
    assert planned.weights == pytest.approx(found.weights + found.copies, rel=0.1)
