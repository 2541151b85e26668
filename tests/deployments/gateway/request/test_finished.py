"""Every finished request is handed to every sink once, whatever became of it."""

from __future__ import annotations

import logging

import pytest
from support.gateway import CHAT, Running, chat, gateway
from support.graph import eventually

from serve_app.request.record import UNMATCHED, RequestRecord


async def recorded(records: list[RequestRecord], count: int) -> list[RequestRecord]:
    """The records of requests that took time of a model or were refused; the client may be answered first."""

    async def there() -> bool:
        return len(those(records)) >= count

    assert await eventually(there, within_s=5), records
    return those(records)


def those(records: list[RequestRecord]) -> list[RequestRecord]:
    return [record for record in records if record.endpoint not in {"ready", "admin_fleet"}]


async def test_a_stream_is_one_record() -> None:
    records: list[RequestRecord] = []
    async with gateway(sinks=[records.append]) as running:
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        headers = {"x-request-id": "mine", "x-session-id": "ann", **trace}
        answer = await running.post("hello", headers, stream=True)
        (record,) = await recorded(records, 1)
    assert answer.status == 200
    assert (record.request_id, record.trace_id) == ("mine", "0af7651916cd43dd8448eb211c80319c")
    assert (record.method, record.route, record.endpoint) == ("POST", CHAT, "chat")
    assert (record.tenant, record.model, record.member) == ("default", "sim", "e0")
    assert (record.status, record.error, record.streamed, record.cache) == (200, None, True, "bypass")
    assert record.session is not None
    assert "ann" not in record.session
    assert {"admit", "route", "upstream-ttft", "upstream"} <= {step.name for step in record.steps}
    assert record.ttft_ms is not None
    assert 0 < record.ttft_ms < record.total_ms
    assert 0 < record.overhead_ms < record.upstream_ms
    assert record.upstream_ms + record.overhead_ms == pytest.approx(record.total_ms)


async def test_what_is_refused_is_recorded_too() -> None:
    records: list[RequestRecord] = []
    async with gateway(tenants=("a",), sinks=[records.append]) as running:
        await running.post("hello")
        await running.send(chat("hello", model="none"), headers=running.headers("a"))
        async with running.http.get("/nowhere"):
            pass
        unknown, no_model, no_path = await recorded(records, 3)
    assert (unknown.status, unknown.tenant, unknown.endpoint) == (401, None, "chat")
    assert unknown.error is not None
    assert (no_model.status, no_model.tenant, no_model.error) == (404, "a", "model_not_found")
    assert (no_path.status, no_path.route, no_path.error) == (404, UNMATCHED, "not_found")


async def test_a_sink_that_fails_hurts_no_one_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    records: list[RequestRecord] = []

    def broken(record: RequestRecord) -> None:
        raise RuntimeError(record.request_id)

    with caplog.at_level(logging.ERROR):
        async with gateway(sinks=[broken, records.append]) as running:
            assert [await ask(running, text) for text in "abc"] == [200, 200, 200]
            await recorded(records, 3)
    assert caplog.text.count("failed on a finished request") == 1


async def ask(running: Running, text: str) -> int:
    return (await running.post(text)).status
