"""The routes of the installed vLLM against our table of them."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from vllm.entrypoints.launchers.api_server.routers import register_api_routers
from vllm.entrypoints.pooling.utils import enable_scoring_api

from serve_app.api.routes import ROUTES
from serve_app.settings.paths import ENGINE_PATHS, OTHER_NAMES, SCORE, offered, task_paths
from serve_app.settings.vllm_routes import OWN, PRIVATE

OFFERED = frozenset({*ENGINE_PATHS, *OTHER_NAMES})
GENERATION = ("generate", "transcription", "realtime", "render")


@pytest.fixture(autouse=True)
def logging_stays() -> Iterator[None]:
    """A package that vLLM's routes import (`model_hosting_container_standards`) sets the root logger and all
    its handlers to ERROR; later tests read warnings there."""
    root = logging.getLogger()
    before = [(part, part.level) for part in (root, *root.handlers)]
    yield
    for part, level in before:
        part.setLevel(level)


def mounted(*tasks: str, labels: int = 1) -> set[str]:
    """The routes of an engine with these tasks, without an engine."""
    pooling = next((task for task in tasks if task not in GENERATION), None)
    model: Any = SimpleNamespace(
        get_pooling_task=lambda _: pooling, hf_config=SimpleNamespace(num_labels=labels), architecture="X"
    )
    app = FastAPI()
    app.state.args = Namespace(enable_tokenizer_info_endpoint=True, tokens_only=False)
    args = Namespace(enable_fault_tolerance=True)
    supported: Any = tasks
    register_api_routers(args, app, supported, model)
    return set(paths_of(app.router.routes))


def paths_of(routes: Any) -> Iterator[str]:
    """Routers may be included lazily: their routes are then one level down."""
    for route in routes:
        path = getattr(route, "path", None)
        if path:
            yield path
        else:
            yield from paths_of(getattr(getattr(route, "original_router", route), "routes", ()))


def everything(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    return mounted("generate", "render", "transcription", "realtime", "embed", "classify")


def test_every_route_of_vllm_is_offered_ours_or_private(monkeypatch: pytest.MonkeyPatch) -> None:
    found = everything(monkeypatch)
    assert len(found) > 40, found
    assert found - OFFERED - OWN - PRIVATE == set(), "new routes of vLLM: decide about them"


def test_the_table_names_no_route_twice() -> None:
    assert len(OFFERED | OWN | PRIVATE) == len(OFFERED) + len(OWN) + len(PRIVATE)


def test_private_routes_have_no_route_here() -> None:
    exact = {route.path for route in ROUTES if "{" not in route.path}
    assert exact.isdisjoint(PRIVATE)
    assert exact >= OFFERED


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize(
    "task", ["generate", "embed", "classify", "token_embed", "token_classify", "transcription", "realtime"]
)
def test_what_a_task_offers_is_what_vllm_mounts_for_it(task: str, labels: int) -> None:
    found = mounted(task, labels=labels)
    model: Any = SimpleNamespace(
        get_pooling_task=lambda _: None if task in GENERATION else task,
        hf_config=SimpleNamespace(num_labels=labels),
    )
    scores = enable_scoring_api((task,), model)  # type: ignore[arg-type]
    expected = task_paths([task, *([SCORE] if scores else [])])
    assert expected == found & OFFERED - OTHER_NAMES.keys()


def test_a_path_that_no_task_has_is_left_to_the_engine() -> None:
    assert offered(["/v1/plugin", "/v1/embeddings", "/tokenize"], ["generate"]) == {"/v1/plugin", "/tokenize"}
