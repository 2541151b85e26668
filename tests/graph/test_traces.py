"""One trace per request, a span per step, over real OTLP."""

from __future__ import annotations

import aiohttp
from support.collector import Collector
from support.graph import CHAT, Graph, chat, eventually

STEPS_OF_A_MISS = ["admit", "exact", "embed", "search", "route", "upstream-ttft", "upstream", "store"]
CALLS = {"embedder.embed", "cache.look_up"}
"""What the other deployments made of the trace themselves."""


async def test_a_request_is_one_trace_with_a_span_for_each_step(
    http: aiohttp.ClientSession, main: Graph, collector: Collector
) -> None:
    trace_id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = main.headers() | {"traceparent": f"00-{trace_id}-{parent}-01"}
    text = "say something that only this trace has asked"
    async with http.post(main.url + CHAT, json=chat(text), headers=headers) as response:
        assert response.headers["x-cache"] == "miss"
        await response.read()

    async def complete() -> bool:
        names = {span.name for span in collector.trace(trace_id)}
        return names >= {f"POST {CHAT}", *STEPS_OF_A_MISS, *CALLS}

    assert await eventually(complete, within_s=10), [span.name for span in collector.trace(trace_id)]
    spans = {span.name: span for span in collector.trace(trace_id)}
    root = spans.pop(f"POST {CHAT}")
    assert root.parent_span_id.hex() == parent
    # Only where no connection was kept, and where there is a near entry.
    spans_of_steps = spans.keys() - {"connect", "decide"} - CALLS
    assert sorted(spans_of_steps) == sorted(STEPS_OF_A_MISS)
    for span in spans.values():
        assert span.parent_span_id == root.span_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    attributes = {item.key: item.value for item in root.attributes}
    assert attributes["promptly.cache"].string_value == "miss"
    assert attributes["http.response.status_code"].int_value == 200
    assert text not in str(root)  # no prompt in a trace
    (seen,) = await main.engine().broadcast("seen").results_async()
    sent = next(request for request in seen if request["body"]["messages"][0]["content"] == text)
    assert sent["headers"]["traceparent"] == f"00-{trace_id}-{root.span_id.hex()}-01"


async def test_a_failure_has_the_spans_of_all_deployments_although_its_caller_left_it_out(
    http: aiohttp.ClientSession, main: Graph, collector: Collector
) -> None:
    trace_id, parent = "1af7651916cd43dd8448eb211c80319d", "c7ad6b7169203331"
    headers = main.headers() | {"traceparent": f"00-{trace_id}-{parent}-00"}
    async with http.post(main.url + CHAT, json=chat("status 500"), headers=headers) as response:
        assert response.status == 502

    async def complete() -> bool:
        return {span.name for span in collector.trace(trace_id)} >= {f"POST {CHAT}", *CALLS}

    assert await eventually(complete, within_s=20), [span.name for span in collector.trace(trace_id)]
    spans = {span.name: span for span in collector.trace(trace_id)}
    root = spans[f"POST {CHAT}"]
    assert root.parent_span_id.hex() == parent
    assert {spans[name].parent_span_id for name in CALLS} == {root.span_id}
