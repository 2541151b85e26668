"""An engine's deployment, as Serve is asked for it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import serve

from deployments.engine.replica import EngineReplica, engine_replica
from deployments.graph import build_graph, engine_options
from serve_app.model_store import ModelStore
from serve_app.settings import EngineSettings, ModelSettings, load_file, parse_args
from serve_app.upgrades import engine_deployments, part_versions

ROOT = Path(__file__).parents[3]
PORTS = range(20_000, 20_010)
GATHERED = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "accelerator_type": "H100", "num_cpus": 3}


def shipped() -> dict[str, ModelSettings]:
    files = {path.name: load_file(path)[0] for path in sorted((ROOT / "config").glob("*.yaml"))}
    return {name: model for name, found in files.items() for model in found.engine_models if model.engine}


def of(**engine: Any) -> ModelSettings:
    settings = EngineSettings.model_validate(engine)
    return ModelSettings(id="some/model-1.5", source="owner/model", engine=settings, replicas=2)


CASES = shipped() | {
    "packed": of(**GATHERED),
    "spread": of(placement="spread", **GATHERED),
    "on nodes of its own": of(nodes="promptly_engine_a", **GATHERED),
    "on nodes of its own, on CPUs": of(accelerator="cpu", nodes="promptly_engine_a"),
    "two ranks on CPUs": of(accelerator="cpu", tensor_parallel_size=2),
    "autoscaled": of().model_copy(update={"replicas": shipped()["gpu-70b-tp4.yaml"].replicas}),
}


def asked(application: serve.Application) -> dict[str, Any]:
    """What Serve would do with the deployment."""
    deployment: Any = application._bound_deployment
    replica = deployment._replica_config
    placed = [{name: n for name, n in bundle.items() if n} for bundle in replica.placement_group_bundles]
    environment = replica.ray_actor_options["runtime_env"]["env_vars"]
    return {
        "name": deployment.name,
        "cpus": replica.ray_actor_options["num_cpus"],
        "environment": environment,
        "bundles": placed,
        "strategy": replica.placement_group_strategy,
        "options": deployment._deployment_config.model_dump(exclude={"autoscaling_config"}),
    }


@pytest.mark.parametrize("name", CASES)
def test_an_engine_is_placed_as_ray_serve_llm_would_place_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray.serve.llm import build_llm_deployment

    from deployments.engine.deployment import Engine, llm_config

    model = CASES[name]
    # Ray would be started, only to be asked for the environment of a job that there is not.
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(runtime_env={}))
    theirs = build_llm_deployment(
        llm_config(model, ModelStore(tmp_path)),
        deployment_cls=Engine,
        name_prefix="Engine:",
        override_serve_options=engine_options(model),
    )

    assert asked(engine_replica(model, PORTS, engine_options(model))) == asked(theirs)


def test_the_graph_names_engines_as_a_new_config_names_them() -> None:
    """`promptly apply` finds an engine's deployment and its version by the name."""
    from ray.serve._private.build_app import build_app

    engine = {"accelerator": "gpu"}
    asked_for = [{"id": name, "source": "org/m", "engine": engine} for name in ("org/m-0.5b", "plain")]
    settings = parse_args({"models": asked_for}, source="test")
    graph = build_graph(
        settings, {}, engine=lambda model: engine_replica(model, PORTS, engine_options(model))
    )
    built = {each.name: each for each in build_app(graph, name="app").deployments}

    names = {name for model in settings.models for name in engine_deployments(model)}
    assert names == {"Engine:org--m-0_5b", "Engine:plain"}
    versions = part_versions(settings)
    assert {name: built[name]._version for name in names} == {name: versions[name] for name in names}


def test_a_model_with_prefill_replicas_has_two_deployments() -> None:
    model = of(disaggregation={"prefill_replicas": 1})
    assert engine_deployments(model) == ("Engine:some--model-1_5", "Prefill:some--model-1_5")


def test_a_replica_has_every_call_of_its_engine() -> None:
    """Of the gateways and of Serve; what ``ray.serve.llm`` adds for its own ingress is not among them."""
    from deployments.engine.deployment import Engine

    own = {name for name in vars(Engine) if inspect.isfunction(vars(Engine)[name])}
    wanted = {name for name in own if not name.startswith("_")} | {"__del__"}
    assert wanted <= set(vars(EngineReplica))
    for hook in wanted:
        theirs, ours = (inspect.signature(getattr(each, hook)) for each in (Engine, EngineReplica))
        assert str(theirs) == str(ours)


def test_building_the_graph_imports_neither_vllm_nor_torch() -> None:
    """Each of them would add seconds to every start."""
    script = """
import sys
from pathlib import Path
from deployments.engine.checks import check_on_node, check_served
from deployments.engine.replica import engine_replica
from deployments.graph import engine_options
from serve_app.model_store import ModelStore
from serve_app.settings import load_file

(settings,) = load_file(Path("config/local.yaml"))
model = settings.models[0]
check_served(model)
check_on_node(model, ModelStore(Path("nowhere")))
engine_replica(model, range(0, 1), engine_options(model))
print(sorted({"vllm", "torch", "transformers", "ray.llm"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_engine_starts_no_actor_for_usage_statistics_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ray.serve.llm`` would start one, and wait until it has imported vLLM."""
    import asyncio

    import ray

    from deployments.engine.deployment import USAGE_STATS, Engine

    class Started:
        is_started = False

        async def start(self) -> None:
            self.is_started = True

    monkeypatch.setenv(USAGE_STATS, "0")
    engine: Any = SimpleNamespace(engine=Started())
    asyncio.run(Engine._start_engine(engine))
    assert engine.engine.is_started
    assert not ray.is_initialized()
