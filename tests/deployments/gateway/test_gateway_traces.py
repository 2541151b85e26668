"""What reaches a real OTLP receiver of a gateway's requests, whatever the head's sampling says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from local_cache import local_cache
from support.collector import Collector, collecting
from support.gateway import CHAT, FAST, Faults, gateway
from support.graph import eventually
from support.handles import LocalHandle

from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls
from serve_app.wire.calls import CACHE

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


class ServedHandle(LocalHandle):
    """Reaches all replicas, too: its target is the only one."""

    def broadcast(self, method: str, *args: Any) -> _Broadcast:
        return _Broadcast(getattr(self, method).remote(*args))


@dataclass(frozen=True)
class _Broadcast:
    call: Any

    async def _fetch_replica_results_async(self) -> list[_Broadcast]:
        return [self]

    async def get_async(self) -> Any:
        return await self.call


async def test_the_cache_s_part_of_a_failure_is_kept_and_that_of_other_requests_is_not(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    async with local_cache(folder, race=False) as cache:
        served = cache.store.target
        reached = asyncio.Event()

        async def look_up(query: Any) -> Any:
            reached.set()
            return await served.look_up(query)

        methods = {name: getattr(served, name) for name in CACHE} | {"look_up": look_up}
        served._direct = DirectCalls(CACHE, methods, "127.0.0.1", call_tracer("cache"))
        handles = {**cache.handles, "cache": [ServedHandle(served)]}
        quiet = {"traces": {"keep_slowest": 0}}
        async with gateway(FAST, handles=handles, **cache.args, **quiet) as running:

            async def reaches_it_directly() -> bool:
                await running.post(f"is the address known {uuid4().hex}")
                return reached.is_set()

            assert await eventually(reaches_it_directly, within_s=20)
            assert (await running.post("well", headers=caller("1" * 32, "00"))).status == 200
            await running.engines[0].set_faults(Faults(status=500))
            assert (await running.post("ill", headers=caller(flags="00"))).status == 502

            async def sent() -> bool:
                return any(span.name == "cache.look_up" for span in collector.trace(TRACE))

            assert await eventually(sent, within_s=20), [span.name for span in collector.trace(TRACE)]
    (looked_up,) = [span for span in collector.spans if span.name == "cache.look_up"]
    assert looked_up.parent_span_id == root_of(collector, TRACE).span_id


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
