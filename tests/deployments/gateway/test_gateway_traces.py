"""What reaches a real OTLP receiver of a gateway's requests, whatever the head's sampling says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.collector import Collector, collecting
from support.gateway import CHAT, FAST, Faults, gateway

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ERROR = 2
"""``Status.STATUS_CODE_ERROR`` of OTLP."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        yield collector


def caller(trace: str = TRACE, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{PARENT}-{flags}"}


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def root_of(collector: Collector, trace: str) -> Any:
    (root,) = [span for span in collector.trace(trace) if span.parent_span_id.hex() == PARENT]
    return root


async def test_a_request_has_the_names_of_the_conventions(collector: Collector) -> None:
    async with gateway() as running:
        answer = await running.post("hi there", headers=caller(), stream=True)
        assert answer.text
    root = root_of(collector, TRACE)
    found = attributes(root)
    assert root.name == f"POST {CHAT}"
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "sim"
    assert found["gen_ai.system"] == "promptly"
    usage = {name: found[f"gen_ai.usage.{name}"] for name in ("input_tokens", "output_tokens")}
    assert all(number > 0 for number in usage.values())
    assert found["http.route"] == CHAT
    assert "error.type" not in found
    assert root.status.code == 0
    assert "hi there" not in str(collector.spans)
    assert {span.name for span in collector.trace(TRACE)} >= {"admit", "upstream-ttft", "upstream"}


async def test_ids_in_paths_make_no_names_of_spans(collector: Collector) -> None:
    async with gateway() as running:
        for path in ("/v1/responses/resp_1234", "/nowhere/at/all"):
            async with running.http.get(path, headers=caller()) as response:
                assert response.status == 404
        assert (await running.http.get("/ready", headers=caller())).status == 200  # a probe has none
    names = {span.name for span in collector.trace(TRACE) if span.parent_span_id.hex() == PARENT}
    assert names == {"GET /v1/responses/{id}", "GET"}


@pytest.mark.parametrize("sampler", ["always_off", "parentbased_always_on", "traceidratio"])
async def test_a_failure_is_kept_whatever_the_sampling(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.0")
    async with gateway(FAST, traces={"keep_slowest": 0}) as running:
        well = await running.post("well", headers=caller("1" * 32, "00"))
        assert well.status == 200
        await running.engines[0].set_faults(Faults(status=500))
        failed = await running.post("ill", headers=caller(flags="00"))
        assert failed.status == 502
    assert collector.trace("1" * 32) == []
    root = root_of(collector, TRACE)
    found = attributes(root)
    assert (root.status.code, found["promptly.kept"]) == (ERROR, "failure")
    assert found["error.type"] == failed.error["code"]
    assert found["http.response.status_code"] == 502
    steps = [span for span in collector.trace(TRACE) if span is not root]
    assert steps
    assert all(span.parent_span_id == root.span_id for span in steps)


async def test_the_slowest_is_kept_with_the_trace_that_its_log_line_names(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    records = []
    async with gateway(traces={"keep_slowest": 1}, sinks=[records.append]) as running:
        assert (await running.post("no caller names a trace")).status == 200
    (asked,) = [record for record in records if record.endpoint == "chat"]
    (root,) = [span for span in collector.trace(asked.trace_id) if not span.parent_span_id]
    assert attributes(root)["promptly.kept"] == "slow"


async def test_a_client_s_fault_is_no_error_of_the_server(collector: Collector) -> None:
    async with gateway() as running:
        refused = await running.send({"model": "sim"}, headers=caller())
        assert refused.status == 400
    root = root_of(collector, TRACE)
    assert root.status.code == 0
    assert attributes(root)["error.type"] == refused.error["code"]


async def test_requests_are_answered_while_the_endpoint_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    async with gateway() as running:
        for _ in range(20):
            assert (await running.post("hi")).status == 200


async def test_what_a_client_names_is_cut(collector: Collector) -> None:
    async with gateway() as running:
        answer = await running.send({"model": "m" * 5000, "messages": []}, headers=caller())
        assert answer.status in {400, 404}
    assert all(len(str(value)) <= 250 for value in attributes(root_of(collector, TRACE)).values())
    assert "m" * 300 not in str(collector.spans)


async def test_a_plain_ratio_does_not_ask_the_client(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.0")
    async with gateway(traces={"keep_slowest": 0}) as running:
        assert (await running.post("sampled, says its client", headers=caller())).status == 200
    assert collector.spans == []
