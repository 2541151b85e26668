"""Replicas for which a cluster has no room."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines.placement import check_placement
from serve_app.settings import ResponsesSettings, Settings, parse_args

CPU_MODEL: dict[str, Any] = {"id": "a", "source": "s", "engine": {"accelerator": "cpu", "num_cpus": 1}}
GPU_MODEL: dict[str, Any] = {"id": "b", "source": "s", "engine": {"num_cpus": 0, "tensor_parallel_size": 2}}
GATEWAY = {"gateway": {"num_cpus": 0.5, "replicas": 2}, "responses": {"enabled": False}}


def settings(*models: dict[str, Any]) -> Settings:
    return parse_args({"models": list(models), **GATEWAY}, source="test")


def lines(resources: dict[str, float], *models: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_placement(settings(*models), resources)]


def test_what_fits_is_not_named() -> None:
    assert lines({"CPU": 5.0, "GPU": 4.0}, CPU_MODEL | {"replicas": 2}, GPU_MODEL | {"replicas": 2}) == []


def test_too_many_replicas_name_the_setting_and_how_many_would_fit() -> None:
    (line,) = lines({"CPU": 8.0}, CPU_MODEL | {"replicas": 5})
    assert line == (
        "models[0].replicas = 5: each takes 2 CPU, and of the cluster's 8 CPU 7 are left for them; "
        "use at most 3, or add nodes with 3 CPU"
    )


def test_where_not_one_fits_only_nodes_help() -> None:
    (line,) = lines({"CPU": 8.0}, GPU_MODEL)
    assert line.endswith("of the cluster's 0 GPU 0 are left for them; add nodes with 2 GPU")


def test_earlier_models_take_their_room_first() -> None:
    (line,) = lines({"CPU": 2.0, "GPU": 4.0}, GPU_MODEL, GPU_MODEL | {"id": "c", "replicas": 2})
    assert line.startswith("models[1].replicas = 2: ")
    assert "use at most 1" in line


@pytest.mark.parametrize(("least", "problems"), [(0, 0), (1, 0), (4, 1)])
def test_of_an_autoscaled_model_the_least_number_must_fit(least: int, problems: int) -> None:
    found = lines({"CPU": 5.0}, CPU_MODEL | {"replicas": {"min": least, "max": 100}})
    assert len(found) == problems
    assert all(line.startswith("models[0].replicas.min = 4") for line in found)


def test_replicas_that_prefill_need_room_beside_those_that_decode() -> None:
    apart = {"engine": {"num_cpus": 0, "disaggregation": {"prefill_replicas": 3}}, "replicas": 2}
    assert lines({"CPU": 1.0, "GPU": 5.0}, GPU_MODEL | apart) == []
    (line,) = lines({"CPU": 1.0, "GPU": 4.0}, GPU_MODEL | apart)
    assert line.startswith("models[0].engine.disaggregation.prefill_replicas = 3: ")
    assert "use at most 2" in line


def test_models_without_replicas_take_nothing() -> None:
    upstream = {"name": "u", "url": "http://127.0.0.1:1/v1"}
    assert lines({"CPU": 1.0}, {"id": "x", "upstreams": [upstream]}) == []


def test_the_store_of_responses_takes_its_part() -> None:
    stored = settings(CPU_MODEL | {"replicas": 2}).model_copy(
        update={"responses": ResponsesSettings(num_cpus=0.5)}
    )
    (problem,) = check_placement(stored, {"CPU": 5.0})
    assert str(problem).endswith("add nodes with 0.5 CPU")


@pytest.mark.parametrize("owner", ["accounts", "feedback"])
def test_other_owners_of_files_take_theirs(owner: str) -> None:
    args = {"models": [CPU_MODEL], **GATEWAY, "auth": {"keys_env": "KEYS"}, owner: {"num_cpus": 3}}
    stored = parse_args(args, source="test")
    assert list(check_placement(stored, {"CPU": 6.0})) == []
    (problem,) = check_placement(stored, {"CPU": 5.0})
    assert str(problem).endswith("add nodes with 1 CPU")


@pytest.mark.parametrize("part", ["front", "files"])
def test_a_resource_that_no_node_has_is_named_by_its_setting(part: str) -> None:
    named = parse_args({"models": [CPU_MODEL], **GATEWAY, "nodes": {part: "mine"}}, source="test")
    assert list(check_placement(named, {"CPU": 16.0, "mine": 1.0})) == []
    (problem,) = check_placement(named, {"CPU": 16.0})
    assert str(problem) == (
        f"nodes.{part} = 'mine': no node of the cluster has the resource 'mine'; "
        "start one with it (`ray start --resources`)"
    )


def test_engines_are_not_blamed_for_the_room_that_gateways_take() -> None:
    many = parse_args(
        {"models": [CPU_MODEL], **GATEWAY, "gateway": {"num_cpus": 0.1, "replicas": 500}}, source="test"
    )
    (problem,) = check_placement(many, {"CPU": 16.0})
    assert str(problem) == (
        "gateway.replicas = 500: gateways, embedders and owners of files take 50 CPU, and the cluster has "
        "16; use fewer or smaller ones, or add nodes with 36 CPU, engines included"
    )
    around, engine = check_placement(many, {"CPU": 1.0})
    assert str(around).startswith("gateway.replicas = 500: ")
    assert "of the cluster's 1 CPU 1 are left for them" in str(engine)


def test_gateways_that_do_not_fit_are_a_problem_without_any_engine() -> None:
    upstream = {"name": "u", "url": "http://127.0.0.1:1/v1"}
    args = {"models": [{"id": "x", "upstreams": [upstream]}], **GATEWAY}
    many = parse_args({**args, "gateway": {"num_cpus": 0.5, "replicas": 20}}, source="test")
    (problem,) = check_placement(many, {"CPU": 8.0})
    assert str(problem) == (
        "gateway.replicas = 20: gateways, embedders and owners of files take 10 CPU, and the cluster has 8; "
        "use fewer or smaller ones, or add nodes with 2 CPU"
    )
    on_gpus = parse_args(
        {**args, "embedder": {"id": "e", "source": "s", "device": "cuda", "replicas": 2}}, source="test"
    )
    (problem,) = check_placement(on_gpus, {"CPU": 8.0, "GPU": 1.0})
    assert str(problem).startswith("embedder.replicas = 2: ")
