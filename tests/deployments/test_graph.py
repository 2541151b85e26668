"""The graph as Serve gets it; nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ray.serve._private.build_app import build_app

from deployments.engine.replica import engine_replica
from deployments.graph import build_graph, engine_options
from serve_app.engines.placement import SHARE
from serve_app.settings import parse_args
from serve_app.settings.network import ANY_PORT

EVERYTHING: Mapping[str, Any] = {
    "models": [{"id": "m", "source": "org/m", "engine": {"accelerator": "cpu"}}],
    "embedder": {"id": "e", "source": "org/e"},
    "cache": {"shards": 2},
    "auth": {"keys_env": "KEYS"},
    "accounts": {},
    "feedback": {},
}
KEYS = {"KEYS": "a=a-key-of-sixteen-characters-and-more"}


def resources(**nodes: str) -> dict[str, dict[str, float]]:
    """By deployment."""
    settings = parse_args({**EVERYTHING, "nodes": nodes}, source="test")
    graph = build_graph(
        settings, KEYS, engine=lambda model: engine_replica(model, ANY_PORT, engine_options(model))
    )
    deployments = build_app(graph, name="app").deployments
    return {each.name: (each.ray_actor_options or {}).get("resources") or {} for each in deployments}


def test_without_names_of_nodes_parts_run_anywhere() -> None:
    assert set(map(str, resources().values())) == {"{}"}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("front", {"Gateway", "Embedder"}),
        ("files", {"SemanticCache", "SemanticCache:2", "Responses", "Accounts", "Feedback"}),
    ],
)
def test_a_part_runs_only_on_the_nodes_that_are_named_for_it(kind: str, parts: set[str]) -> None:
    found = resources(**{kind: "mine"})
    assert {name for name, needs in found.items() if needs == {"mine": SHARE}} == parts
    assert not any(needs for name, needs in found.items() if name not in parts)
