"""Metrics reach a real OTLP receiver under OpenTelemetry's names, and nothing happens unless an exporter is
named."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.collector import collecting
from support.meter import Meter

from deployments.platform.metrics import RayMeter
from deployments.platform.otel_metrics import Meters, otel_meter_from
from serve_app.monitoring.metrics import BUCKETS_S, DURATIONS, FIRING, METRICS, REQUESTS, Kind

ANSWERED = {"model": "m", "outcome": "answered"}
FAILED = {"model": "m", "outcome": "failed"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_METRICS_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_exported_unless_an_exporter_is_named(environment: dict[str, str]) -> None:
    assert otel_meter_from(environment) is None


def test_an_unknown_exporter_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'carrier-pigeon'.*console"):
        otel_meter_from({"OTEL_METRICS_EXPORTER": "carrier-pigeon"})


def attributes(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


@pytest.mark.parametrize(
    ("opt_in", "provider"),
    [("", "gen_ai.system"), ("http,gen_ai_latest_experimental", "gen_ai.provider.name")],
)
def test_a_receiver_gets_them_under_the_names_of_the_chosen_version(
    monkeypatch: pytest.MonkeyPatch, opt_in: str, provider: str
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        meter = otel_meter_from(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SEMCONV_STABILITY_OPT_IN": opt_in}
        )
        assert meter is not None
        meter.observe(DURATIONS["ttft"], 0.25, ANSWERED, "rerank")
        meter.observe(DURATIONS["e2e"], 2.0, FAILED)
        meter.observe(DURATIONS["overhead"], 0.003, ANSWERED)
        meter.add(REQUESTS, 3, ANSWERED)
        meter.set(FIRING, 1.0, {"rule": "ttft_p95", "model": "m"})
        meter.shut_down()
    assert collector.metrics.keys() == {
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.request.duration",
        "promptly.overhead",
        "promptly.requests",
        "promptly.alert_firing",
    }
    (ttft,) = collector.metrics["gen_ai.server.time_to_first_token"].histogram.data_points
    assert (ttft.count, ttft.sum, tuple(ttft.explicit_bounds)) == (1, 0.25, BUCKETS_S)
    assert attributes(ttft) == {
        "gen_ai.operation.name": "rerank",
        "gen_ai.request.model": "m",
        "promptly.outcome": "answered",
        provider: "promptly",
    }
    (failed,) = collector.metrics["gen_ai.server.request.duration"].histogram.data_points
    assert attributes(failed)["error.type"] == "_OTHER"
    (requests,) = collector.metrics["promptly.requests"].sum.data_points
    assert requests.as_double == 3 or requests.as_int == 3


def test_a_dead_endpoint_does_not_hold_a_value_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    meter = otel_meter_from({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert meter is not None
    for _ in range(1000):
        meter.add(REQUESTS, 1, ANSWERED)
    meter.shut_down()


def test_every_value_goes_to_each_meter() -> None:
    one, other = Meter(), Meter()
    meters = Meters([one, other])
    meters.observe(DURATIONS["ttft"], 0.25, ANSWERED)
    meters.add(REQUESTS, 3, ANSWERED)
    meters.set(FIRING, 1.0, {"rule": "r", "model": "m"})
    assert one.labels == other.labels
    assert set(one.labels) == {"promptly_ttft_seconds", "promptly_requests", "promptly_alert_firing"}


def test_ray_takes_every_metric_with_its_labels() -> None:
    meter = RayMeter()
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        give = {Kind.HISTOGRAM: meter.observe, Kind.COUNTER: meter.add, Kind.GAUGE: meter.set}[metric.kind]
        give(metric, 1.0, labels)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_buckets_reach_from_a_millisecond_to_a_minute() -> None:
    assert (BUCKETS_S[0], BUCKETS_S[-1]) == (0.001, 60.0)
    steps = [after / before for before, after in itertools.pairwise(BUCKETS_S)]
    assert all(1 < step <= 2 for step in steps)
    assert {1.0, 3.0} <= set(BUCKETS_S), "the thresholds of alerts"
