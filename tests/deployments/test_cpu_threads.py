"""Which CPUs an engine computes with."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.cpu_threads import BIND, bound_cpus, runs_in_one_process
from serve_app.settings import ModelSettings


def cpu_engine(replicas: Any = 1, **more: Any) -> ModelSettings:
    return ModelSettings(id="m", source="m", replicas=replicas, engine={"accelerator": "cpu", **more})


@pytest.mark.parametrize(
    ("allowed", "expected"), [({1, 0}, "0,1"), ({2, 5, 3}, "2,3,5"), (range(4), "0,1,2,3")]
)
def test_an_engine_computes_with_all_of_few_cpus(allowed: set[int], expected: str) -> None:
    assert bound_cpus(cpu_engine(), allowed) == expected


@pytest.mark.parametrize("allowed", [{0}, range(5), range(64)])
def test_vllm_chooses_where_there_is_no_choice_or_plenty(allowed: set[int]) -> None:
    assert bound_cpus(cpu_engine(), allowed) is None


@pytest.mark.parametrize("ranks", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_one_rank_on_cpus_needs_one_process(ranks: str) -> None:
    assert runs_in_one_process(cpu_engine())
    assert runs_in_one_process(cpu_engine(replicas=2))
    assert not runs_in_one_process(cpu_engine(**{ranks: 2}))
    assert not runs_in_one_process(ModelSettings(id="m", source="m", engine={}))


def test_ranks_share_the_cpus_as_vllm_divides_them() -> None:
    assert bound_cpus(cpu_engine(tensor_parallel_size=2), {0, 1}) is None
    assert bound_cpus(cpu_engine(pipeline_parallel_size=2), {0, 1}) is None


def test_the_operators_own_choice_stands() -> None:
    assert bound_cpus(cpu_engine(env={BIND: "0"}), {0, 1}) is None


def test_a_gpu_engine_is_left_alone() -> None:
    assert bound_cpus(ModelSettings(id="m", source="m", engine={}), {0, 1}) is None


def test_replicas_that_may_share_a_machine_are_left_to_vllm() -> None:
    assert bound_cpus(cpu_engine(replicas=2), {0, 1}) is None
    assert bound_cpus(cpu_engine(replicas={"min": 1, "max": 2}), {0, 1}) is None
