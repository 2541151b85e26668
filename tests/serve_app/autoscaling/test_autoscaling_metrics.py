"""What a replica reports is what the policy reads."""

from __future__ import annotations

from serve_app.autoscaling import GatewayLoad, ReplicaLoad
from serve_app.autoscaling.metrics import engine_metrics, gateway_loads, replica_loads

LOAD = ReplicaLoad(
    running=3,
    waiting=2,
    waiting_tokens=500,
    kv_cache_usage=0.5,
    capacity=8,
    prefill_tokens_per_s=900.0,
    service_s=2.0,
    itl_s=0.03,
)


def gateway(name: str, number: int, arrived: float = 0.0) -> GatewayLoad:
    return GatewayLoad(name, number, arrived, 10 * arrived, queued=1, queued_tokens=4)


def test_a_replicas_report_is_read_as_it_was_written() -> None:
    told = gateway("a.b-c", 7, arrived=5)
    metrics = engine_metrics(LOAD, [told])
    assert all(type(value) is float for value in metrics.values())
    assert replica_loads([metrics]) == (LOAD,)
    assert gateway_loads([metrics]) == (told,)


def test_what_is_not_measured_yet_stays_unknown() -> None:
    (load,) = replica_loads([engine_metrics(ReplicaLoad(capacity=4), [])])
    assert (load.prefill_tokens_per_s, load.service_s, load.itl_s) == (None, None, None)


def test_the_newest_report_of_a_gateway_counts_and_it_counts_once() -> None:
    old, new, other = gateway("a", 1, arrived=5), gateway("a", 2, arrived=9), gateway("b", 1, arrived=1)
    reports = [engine_metrics(LOAD, [new, other]), engine_metrics(LOAD, [old])]
    assert set(gateway_loads(reports)) == {new, other}
    assert set(gateway_loads(reversed(reports))) == {new, other}


def test_a_replica_that_has_not_reported_is_empty_and_of_the_usual_size() -> None:
    silent, _ = replica_loads([{}, engine_metrics(LOAD, [])])
    assert silent == ReplicaLoad(capacity=LOAD.capacity)
    assert replica_loads([{}]) == (ReplicaLoad(),)


def test_other_metrics_and_half_of_a_report_are_passed_over() -> None:
    metrics = {"running_requests": 4.0, "gateway.a.arrived": 3.0, "gateway..x": 1.0}
    assert gateway_loads([metrics]) == ()
    assert replica_loads([metrics]) == (ReplicaLoad(),)
