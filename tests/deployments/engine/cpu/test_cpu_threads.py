"""Which CPUs an engine computes with."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deployments.engine.cpu.lease import lease_cpus
from deployments.engine.cpu.threads import BIND, bind_threads, bound_cpus, leased_cpus, runs_in_one_process
from serve_app.settings import ModelSettings


def cpu_engine(replicas: Any = 1, **more: Any) -> ModelSettings:
    return ModelSettings(id="m", source="m", replicas=replicas, engine={"accelerator": "cpu"} | more)


@pytest.mark.parametrize(
    ("allowed", "expected"), [({1, 0}, (0, 1)), ({2, 5, 3}, (2, 3, 5)), (range(4), (0, 1, 2, 3))]
)
def test_an_engine_computes_with_all_of_few_cpus(allowed: set[int], expected: tuple[int, ...]) -> None:
    assert bound_cpus(cpu_engine(), allowed) == expected


@pytest.mark.parametrize("allowed", [{0}, range(5), range(64)])
def test_vllm_chooses_where_there_is_no_choice_or_plenty(allowed: set[int]) -> None:
    assert bound_cpus(cpu_engine(), allowed) == ()


@pytest.mark.parametrize("ranks", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_one_rank_on_cpus_needs_one_process(ranks: str) -> None:
    assert runs_in_one_process(cpu_engine())
    assert runs_in_one_process(cpu_engine(replicas=2))
    assert not runs_in_one_process(cpu_engine(**{ranks: 2}))
    assert not runs_in_one_process(ModelSettings(id="m", source="m", engine={}))


def test_ranks_share_the_cpus_as_vllm_divides_them() -> None:
    assert bound_cpus(cpu_engine(tensor_parallel_size=2), {0, 1}) == ()
    assert bound_cpus(cpu_engine(pipeline_parallel_size=2), {0, 1}) == ()


def test_the_operators_own_choice_stands() -> None:
    assert bound_cpus(cpu_engine(env={BIND: "0"}), {0, 1}) == ()


def test_a_gpu_engine_is_left_alone() -> None:
    assert bound_cpus(ModelSettings(id="m", source="m", engine={}), {0, 1}) == ()


SEVERAL = pytest.mark.parametrize("replicas", [2, {"min": 1, "max": 2}, {"min": 0, "max": 2}])


@SEVERAL
def test_replicas_that_may_share_a_machine_take_what_ray_counts_for_them_or_their_part(replicas: Any) -> None:
    assert bound_cpus(cpu_engine(replicas), {0, 1}) == ()
    assert leased_cpus(cpu_engine(replicas, num_cpus=3), machine=4) == 4
    assert leased_cpus(cpu_engine(replicas, num_cpus=0), machine=2) == 1
    assert leased_cpus(cpu_engine(replicas, num_cpus=0), machine=9) == 4


@pytest.mark.parametrize(
    "engine",
    [
        {"env": {BIND: "0"}},
        {"tensor_parallel_size": 2},
        {"disaggregation": {"prefill_replicas": 1}},
        {"accelerator": "gpu"},
    ],
)
def test_nothing_is_taken_where_cpus_are_chosen_otherwise(engine: dict[str, Any]) -> None:
    assert leased_cpus(cpu_engine(2, **engine), machine=8) == 0


def test_a_replica_that_is_alone_takes_nothing_from_others() -> None:
    assert leased_cpus(cpu_engine(), machine=8) == 0
    assert leased_cpus(cpu_engine({"min": 0, "max": 1}), machine=8) == 0
    assert bound_cpus(cpu_engine({"min": 0, "max": 1}), {0, 1}) == (0, 1)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bound stays in this test."""
    monkeypatch.setenv(BIND, "as it was")


@pytest.mark.usefixtures("environment")
def test_two_replicas_bind_different_cpus(tmp_path: Path) -> None:
    model = cpu_engine(1000, num_cpus=0)  # one CPU each, on any machine
    first = bind_threads(model, tmp_path)
    bound = os.environ[BIND]
    second = bind_threads(model, tmp_path)
    assert first is not None
    assert second is not None
    assert bound == str(first.cpus[0])
    assert not set(first.cpus) & set(second.cpus)
    first.give_back()
    second.give_back()


@pytest.mark.usefixtures("environment")
def test_where_no_cpu_is_left_vllm_chooses_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with monitored(caplog):
        taken = lease_cpus(os.sched_getaffinity(0), 1000, tmp_path)
        bind_threads(cpu_engine(1000, num_cpus=1), tmp_path, wait_s=0.0)
    assert os.environ[BIND] == "as it was"
    assert "2 CPUs wanted, 0 of" in caplog.text
    taken.give_back()


@pytest.mark.usefixtures("environment")
def test_a_replica_waits_for_the_cpus_of_one_that_ends(tmp_path: Path) -> None:
    model = cpu_engine(1000, num_cpus=0)
    everything = lease_cpus(os.sched_getaffinity(0), 1000, tmp_path)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bind_threads, model, tmp_path, 60.0)
        assert not waiting.done()
        everything.give_back()
        lease = waiting.result(timeout=30)
    assert lease is not None
    assert len(lease.cpus) == 1
    lease.give_back()


@pytest.mark.usefixtures("environment")
def test_leases_that_cannot_be_kept_do_not_stop_an_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with monitored(caplog):
        assert bind_threads(cpu_engine(2), tmp_path / "file" / "below") is None
    assert "no CPUs of its own" in caplog.text


@contextmanager
def monitored(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Serve's logger passes nothing on by itself."""
    logger = logging.getLogger("ray.serve")
    logger.addHandler(caplog.handler)
    try:
        yield
    finally:
        logger.removeHandler(caplog.handler)
