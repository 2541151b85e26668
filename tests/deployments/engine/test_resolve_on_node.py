"""A replica's node names models by its own folders, whatever the node had on which the graph was built."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from deployments.engine.deployment import TELLING, llm_config, resolve_on_node
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

HEAD = "owner/head"
ADAPTER = "owner/adapter"
MODEL = ModelSettings.model_validate(
    {
        "id": "m",
        "source": "owner/target",
        "engine": {
            "speculation": {"method": "eagle3", "model": HEAD, "num_speculative_tokens": 2},
            "lora": {"adapters": {"support": ADAPTER}},
        },
    }
)
SOURCES = ("owner/target", HEAD, ADAPTER)


def node(folder: Path, *, prepared: bool) -> ModelStore:
    store = ModelStore(folder)
    for source in SOURCES if prepared else ():
        store.folder(source).mkdir(parents=True)
    return store


def named(config: Any) -> tuple[str, str, str]:
    engine = config.get_engine_config()
    arguments = engine.get_initialization_kwargs()
    assert "lora_modules" not in engine.engine_kwargs  # vLLM's engine refuses it
    (adapter,) = engine.frontend_kwargs["lora_modules"]
    return arguments["model"], arguments["speculative_config"]["model"], adapter["path"]


@pytest.mark.parametrize("on_head", [True, False])
@pytest.mark.parametrize("on_worker", [True, False])
def test_a_model_is_named_as_the_replicas_node_has_it(tmp_path: Path, on_head: bool, on_worker: bool) -> None:
    config = llm_config(MODEL, node(tmp_path / "head", prepared=on_head))
    config.get_engine_config()  # the graph's builder has asked, and Ray keeps the answer
    here = node(tmp_path / "worker", prepared=on_worker)
    resolve_on_node(config, MODEL, here)
    assert named(config) == tuple(str(here.folder(each)) if on_worker else each for each in SOURCES)


def test_engines_tell_what_a_request_took_unless_their_options_say_otherwise(tmp_path: Path) -> None:
    """By the names of the installed vLLM's HTTP server; its engine refuses them."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    store = node(tmp_path, prepared=True)

    def telling(**engine: Any) -> tuple[Any, ...]:
        model = ModelSettings.model_validate({"id": "m", "source": "owner/target", "engine": engine})
        config = llm_config(model, store)
        config.get_engine_config()
        resolve_on_node(config, model, store)
        kept = config.get_engine_config()
        assert kept is not None
        assert not kept.engine_kwargs.keys() & set(TELLING)
        return tuple(getattr(FrontendArgs(**kept.frontend_kwargs), name) for name in TELLING)

    assert not {field.name for field in dataclasses.fields(AsyncEngineArgs)} & set(TELLING)
    assert telling() == (True, True)
    assert telling(options={"enable_per_request_metrics": False}) == (False, True)
