"""One trace per request, a span per step, over real OTLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import aiohttp
from support.collector import Collector
from support.graph import CHAT, Graph, chat, eventually

STEPS_OF_A_MISS = ["admit", "exact", "embed", "search", "route", "upstream-ttft", "upstream", "store"]
CALLS = {"embedder.embed", "cache.look_up"}
"""What the other deployments made of the trace themselves."""

PARENT = "b7ad6b7169203331"
TRIES = 6
"""A gateway that has just begun does not know all addresses yet: what it calls through Ray has no span."""


class Traced:
    """A request that was sent with a trace of its own, and that trace's spans."""

    def __init__(self, text: str, collector: Collector) -> None:
        self.id = uuid4().hex
        self.text = text
        self._collector = collector

    @property
    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self._collector.trace(self.id)}


async def traced(
    http: aiohttp.ClientSession,
    main: Graph,
    collector: Collector,
    texts: Sequence[str],
    names: set[str],
    *,
    flags: str,
    status: int,
) -> Traced:
    """The first of these requests whose trace has all ``names``. ``flags``: the caller's."""
    for text in texts:
        one = Traced(text, collector)
        headers = main.headers() | {"traceparent": f"00-{one.id}-{PARENT}-{flags}"}
        async with http.post(main.url + CHAT, json=chat(one.text), headers=headers) as response:
            assert response.status == status
            await response.read()

        async def complete(one: Traced = one) -> bool:
            return one.spans.keys() >= names

        if await eventually(complete, within_s=10):
            return one
    raise AssertionError(sorted(one.spans))


async def test_a_request_is_one_trace_with_a_span_for_each_step(
    http: aiohttp.ClientSession, main: Graph, collector: Collector
) -> None:
    names = {f"POST {CHAT}", *STEPS_OF_A_MISS, *CALLS}
    texts = [f"say something that only trace {number} has asked" for number in range(TRIES)]
    one = await traced(http, main, collector, texts, names, flags="01", status=200)
    spans = one.spans
    root = spans.pop(f"POST {CHAT}")
    assert root.parent_span_id.hex() == PARENT
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
    assert one.text not in str(root)  # no prompt in a trace
    (seen,) = await main.engine().broadcast("seen").results_async()
    sent = next(request for request in seen if request["body"]["messages"][0]["content"] == one.text)
    assert sent["headers"]["traceparent"] == f"00-{one.id}-{root.span_id.hex()}-01"


async def test_a_failure_has_the_spans_of_all_deployments_although_its_caller_left_it_out(
    http: aiohttp.ClientSession, main: Graph, collector: Collector
) -> None:
    names = {f"POST {CHAT}", *CALLS}
    texts = [f"status {'0' * number}500" for number in range(TRIES)]
    spans = (await traced(http, main, collector, texts, names, flags="00", status=502)).spans
    root = spans[f"POST {CHAT}"]
    assert root.parent_span_id.hex() == PARENT
    assert {spans[name].parent_span_id for name in CALLS} == {root.span_id}
