"""``/v1/responses`` as OpenAI's own client uses it: streams, tools, state, and what may not be done."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel
from sim_engine import SimSettings
from support.gateway import FAST, MODEL, Running, gateway, meanwhile
from support.graph import eventually
from support.handles import LocalCall, LocalHandle, LocalMethod
from support.responses import responses_handle

from deployments.gateway.request.exchange import Exchange
from deployments.gateway.responses.detached import DetachedExchange
from deployments.gateway.responses.reading import loaded
from serve_app.dialects import Reading
from serve_app.request.auth import DEFAULT_TENANT, Identity
from serve_app.stored_responses.status import LEASE_S
from serve_app.stored_responses.values import Record

RESPONSES = "/v1/responses"
JSON = {"content-type": "application/json"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
PLAN = [
    {
        "reasoning": "I must look.",
        "text": "I look.",
        "calls": [
            {"name": "get_weather", "arguments": {"city": "Bern"}},
            {"name": "get_weather", "arguments": {"city": "Rome"}},
        ],
    },
    {"text": "It rains in both."},
]


@asynccontextmanager
async def responding(folder: Path, *engines: SimSettings, **args: Any) -> AsyncIterator[Running]:
    """A gateway with a store."""
    settings = args.pop("responses", {})
    async with responses_handle(folder, **settings) as handle:
        handles = {"responses": handle}
        async with gateway(*engines, handles=handles, responses=settings, **args) as running:
            yield running


@asynccontextmanager
async def gpt(running: Running, key: str = "none") -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as client:
        yield client


def planned(plan: list[dict[str, Any]]) -> SimSettings:
    return SimSettings(itl_ms=1.0, plan=json.dumps(plan))


async def test_a_chain_goes_on_with_what_was_said(tmp_path: Path) -> None:
    engine = SimSettings(itl_ms=1.0, tokens=5, keep_bodies=5)
    async with responding(tmp_path, engine) as running, gpt(running) as client:
        first = await client.responses.create(model=MODEL, input="My name is Ada.", instructions="Be kind.")
        assert first.status == "completed"
        assert first.usage is not None
        assert first.usage.output_tokens == 6
        assert first.store is True  # type: ignore[attr-defined]
        second = await client.responses.create(model=MODEL, input="Who am I?", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        sent = json.loads(running.engines[0].stats().seen[-1]["body"])["messages"]
        assert sent == [
            {"role": "user", "content": "My name is Ada."},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "Who am I?"},
        ]


async def test_a_stream_has_all_typed_events_and_the_same_response_at_its_end(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        async with client.responses.stream(model=MODEL, input="hi") as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        kinds = [event.type for event in events]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert kinds[-4:] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert said == final.output_text
        kept = await client.responses.retrieve(final.id)
        assert kept.output_text == said
        again = [event async for event in await client.responses.retrieve(final.id, stream=True)]
        assert again[-1].type == "response.completed"
        assert again[-1].response.output_text == said


async def test_tools_are_called_in_parallel_and_their_results_go_on(tmp_path: Path) -> None:
    async with responding(tmp_path, planned(PLAN)) as running, gpt(running) as client:
        async with client.responses.stream(model=MODEL, input="weather?", tools=[WEATHER]) as stream:  # type: ignore[list-item]
            events = [event async for event in stream]
            first = await stream.get_final_response()
        kinds = {event.type for event in events}
        assert {"response.reasoning_text.delta", "response.function_call_arguments.delta"} <= kinds
        reasoning, message, bern, rome = first.output
        assert reasoning.type == "reasoning"
        assert message.type == "message"
        assert bern.type == rome.type == "function_call"
        assert [json.loads(call.arguments)["city"] for call in (bern, rome)] == ["Bern", "Rome"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
            for call in (bern, rome)
        ]
        second = await client.responses.create(
            model=MODEL,
            input=results,
            tools=[WEATHER],
            previous_response_id=first.id,  # type: ignore[arg-type, list-item]
        )
        assert second.output_text == "It rains in both."


async def test_items_may_be_named_instead_of_sent(tmp_path: Path) -> None:
    """As the AI SDK does with what it knows to be stored."""
    async with responding(tmp_path, planned(PLAN)) as running, gpt(running) as client:
        first = await client.responses.create(model=MODEL, input="weather?", tools=[WEATHER])  # type: ignore[list-item]
        named = [{"type": "item_reference", "id": item.id} for item in first.output]
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
            for item in first.output
            if item.type == "function_call"
        ]
        asked: Any = [{"role": "user", "content": "weather?"}, *named, *results]
        second = await client.responses.create(model=MODEL, input=asked, tools=[WEATHER])  # type: ignore[list-item]
        assert second.output_text == "It rains in both."
        with pytest.raises(openai.BadRequestError, match="names an item more than once"):
            await client.responses.create(model=MODEL, input=[*named, named[0]])  # type: ignore[list-item]
        with pytest.raises(openai.NotFoundError, match="Item with id 'msg_0' not found"):
            await client.responses.create(model=MODEL, input=[{"type": "item_reference", "id": "msg_0"}])


async def test_what_items_are_named_is_bounded_as_a_chain_is(tmp_path: Path) -> None:
    settings = {"max_chain_bytes": 2000, "max_chain": 3}
    async with responding(tmp_path, FAST, responses=settings) as running, gpt(running) as client:
        made = [await client.responses.create(model=MODEL, input="x" * 1500) for _ in range(4)]
        outputs: Any = [{"type": "item_reference", "id": each.output[0].id} for each in made]
        assert (await client.responses.create(model=MODEL, input=[*outputs[:2]])).status == "completed"
        with pytest.raises(openai.BadRequestError, match=r"responses\.max_chain\)"):
            await client.responses.create(model=MODEL, input=outputs)
        inputs: Any = []
        for each in made[:2]:
            (item,) = [item async for item in await client.responses.input_items.list(each.id)]
            inputs.append({"type": "item_reference", "id": item.id})
        with pytest.raises(openai.BadRequestError, match=r"responses\.max_chain_bytes"):
            await client.responses.create(model=MODEL, input=inputs)


async def test_the_limits_of_embeddings_are_not_those_of_a_conversation(tmp_path: Path) -> None:
    limits = {"max_embedding_characters": 100, "max_embedding_inputs": 2}
    async with responding(tmp_path, FAST, limits=limits) as running, gpt(running) as client:
        assert (await client.responses.create(model=MODEL, input="x" * 200)).status == "completed"
        many: Any = [{"role": "user", "content": "hi"} for _ in range(3)]
        assert (await client.responses.create(model=MODEL, input=many)).status == "completed"


async def test_a_schema_is_followed(tmp_path: Path) -> None:
    class Person(BaseModel):
        name: str

    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        parsed = await client.responses.parse(model=MODEL, input="who?", text_format=Person)
        assert isinstance(parsed.output_parsed, Person)


async def test_a_response_is_listed_deleted_and_then_gone(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        asked: Any = [{"role": "user", "content": f"part {n}"} for n in range(3)]
        made = await client.responses.create(model=MODEL, input=asked)
        page = await client.responses.input_items.list(made.id, limit=2, order="asc")
        texts = [item.content[0].text async for item in page]  # type: ignore[union-attr]
        assert texts == ["part 0", "part 1", "part 2"]
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError, match="was deleted"):
            await client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(model=MODEL, input="on", previous_response_id=made.id)
        assert caught.value.code == "previous_response_not_found"


async def test_what_is_not_to_be_stored_is_not(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        made = await client.responses.create(model=MODEL, input="hi", store=False)
        assert made.store is False  # type: ignore[attr-defined]
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)


async def test_another_tenants_response_does_not_exist(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(responding(tmp_path, FAST, tenants=["a", "b"]))
        a, b = [await stack.enter_async_context(gpt(running, running.keys[name])) for name in ("a", "b")]
        made = await a.responses.create(model=MODEL, input="my secret")
        named: Any = [{"type": "item_reference", "id": made.output[0].id}]
        talk = await a.conversations.create(items=[{"role": "user", "content": "my secret"}])  # type: ignore[list-item]
        for call in (
            b.responses.retrieve(made.id),
            b.responses.delete(made.id),
            b.responses.cancel(made.id),
            b.responses.input_items.list(made.id),
            b.responses.create(model=MODEL, input="and?", previous_response_id=made.id),
            b.responses.create(model=MODEL, input=named),
            b.responses.create(model=MODEL, input="and?", conversation=talk.id),
            b.conversations.retrieve(talk.id),
            b.conversations.delete(talk.id),
            b.conversations.items.list(talk.id),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await call
            assert "secret" not in str(caught.value)
        assert (await a.responses.retrieve(made.id)).id == made.id
        assert (await a.conversations.retrieve(talk.id)).id == talk.id


async def test_a_conversation_grows_with_its_responses(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        talk = await client.conversations.create(
            items=[{"type": "message", "role": "user", "content": "hello"}], metadata={"topic": "x"}
        )
        made = await client.responses.create(model=MODEL, input="more", conversation=talk.id)
        assert made.conversation is not None
        assert made.conversation.id == talk.id
        listed = [item async for item in client.conversations.items.list(talk.id, order="asc")]
        assert [item.type for item in listed] == ["message"] * 3
        assert [item.role for item in listed] == ["user", "user", "assistant"]  # type: ignore[union-attr]
        changed = await client.conversations.update(talk.id, metadata={"topic": "y"})
        assert changed.metadata == {"topic": "y"}
        for body in (b"", b"{}", b'{"topic": "z"}'):
            url = f"{running.url}/v1/conversations/{talk.id}"
            async with running.http.post(url, data=body, headers=JSON) as response:
                assert response.status == 400, body
                error = (await response.json())["error"]
            assert (error["code"], error["param"]) == ("missing_field", "metadata")
        assert (await client.conversations.retrieve(talk.id)).metadata == {"topic": "y"}, "nothing is erased"
        url = f"{running.url}/v1/conversations/{talk.id}/items"
        async with running.http.post(url, data=b"{}", headers=JSON) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "items"
        assert (await client.conversations.update(talk.id, metadata=None)).metadata == {}
        await client.conversations.items.delete(listed[0].id or "", conversation_id=talk.id)
        assert len([item async for item in client.conversations.items.list(talk.id)]) == 2
        await client.conversations.delete(talk.id)
        with pytest.raises(openai.NotFoundError, match="was deleted"):
            await client.responses.create(model=MODEL, input="on", conversation=talk.id)


async def test_a_conversation_that_is_too_long_to_go_on_with_can_still_be_read(tmp_path: Path) -> None:
    bounds = {"max_chain_bytes": 1024}
    async with responding(tmp_path, FAST, responses=bounds) as running, gpt(running) as client:
        said = [{"role": "user", "content": f"{number} {'x' * 500}"} for number in range(4)]
        made = await client.conversations.create(items=said)  # type: ignore[arg-type]
        texts = [item.content[0].text async for item in client.conversations.items.list(made.id, order="asc")]  # type: ignore[union-attr]
        assert [text[0] for text in texts] == ["0", "1", "2", "3"]
        (last,) = (await client.conversations.items.list(made.id, limit=1)).data
        one = await client.conversations.items.retrieve(last.id, conversation_id=made.id)  # type: ignore[arg-type]
        assert one.content[0].text == texts[-1]  # type: ignore[union-attr]
        with pytest.raises(openai.BadRequestError, match="too long to go on with"):
            await client.responses.create(model=MODEL, input="hi", conversation=made.id)


async def test_what_a_request_refers_to_counts_among_the_bytes_that_its_tenant_holds(tmp_path: Path) -> None:
    limits = {"max_held_bytes_per_tenant": 50_000}
    slow = SimSettings(itl_ms=20, tokens=10_000)
    async with responding(tmp_path, slow, limits=limits) as running, gpt(running) as client:
        talk = await client.conversations.create(items=[{"role": "user", "content": "x" * 30_000}])
        short = {"model": MODEL, "input": "on", "store": False}
        refers = short | {"conversation": talk.id}
        async with running.http.post(RESPONSES, json=refers | {"stream": True}) as first:
            assert first.status == 200
            refused = await running.send(refers | {"max_output_tokens": 1}, RESPONSES)
            assert refused.status == 429
            assert "limits.max_held_bytes_per_tenant" in refused.error["message"]
            assert (await running.send(short | {"max_output_tokens": 1}, RESPONSES)).status == 200
            first.close()
        await running.until_idle()
        assert (await running.send(refers | {"max_output_tokens": 1}, RESPONSES)).status == 200


async def test_other_requests_go_on_while_a_long_history_is_decoded() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with meanwhile(others()):
        found = await loaded(nobody(), [json.dumps([{"text": "x" * 600_000}]).encode()] * 8)
        assert (len(found), turns) == (8, 4), "every other list is a pause"


def nobody() -> Exchange:
    async def receive() -> Any:
        raise AssertionError

    async def send(_: Any) -> None:
        raise AssertionError

    return Exchange({"type": "http", "method": "POST", "path": RESPONSES, "headers": []}, receive, send)


async def test_items_of_a_clients_own_id_are_all_kept(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        made = await client.conversations.create()
        for text in ("one", "two"):
            item = {"type": "message", "id": "msg_1", "role": "user", "content": text}
            added = await client.conversations.items.create(made.id, items=[item])  # type: ignore[list-item]
        assert added.data[0].id != "msg_1"
        found = [item async for item in client.conversations.items.list(made.id, order="asc")]
        assert [item.content[0].text for item in found] == ["one", "two"]  # type: ignore[union-attr]


async def test_a_deletion_whose_answer_was_lost_is_a_deletion(tmp_path: Path) -> None:
    async with responses_handle(tmp_path) as handle:
        lost = LostAnswers(handle)
        async with gateway(FAST, handles={"responses": lost}) as running, gpt(running) as client:
            kept = await client.responses.create(model=MODEL, input="hi")
            made = await client.conversations.create(items=[{"role": "user", "content": "hi"}])
            (item,) = (await client.conversations.items.list(made.id)).data
            lost.methods |= {"delete", "delete_item", "delete_conversation"}
            await client.responses.delete(kept.id)
            await client.conversations.items.delete(item.id, conversation_id=made.id)  # type: ignore[arg-type]
            await client.conversations.delete(made.id)
            lost.methods.clear()
            with pytest.raises(openai.NotFoundError, match="was deleted"):
                await client.responses.delete(kept.id)


class LostAnswers:
    """The store behind a handle, where the first answer of each of ``methods`` is lost."""

    def __init__(self, handle: LocalHandle) -> None:
        self._handle = handle
        self.methods: set[str] = set()

    def __getattr__(self, method: str) -> LocalMethod:
        async def call(*args: Any) -> Any:
            answer = await getattr(self._handle, method).remote(*args)
            if method in self.methods:
                self.methods.remove(method)
                raise ConnectionError("killed before it answered")
            return answer

        return LocalMethod(lambda *args: LocalCall(call(*args)))


async def test_only_some_requests_wait_for_a_store_that_stalls(tmp_path: Path) -> None:
    bounds = {"max_waiting_calls": 1, "call_timeout_s": 600}
    async with responses_handle(tmp_path, **bounds) as handle:
        handles = {"responses": handle}
        async with gateway(FAST, handles=handles, responses=bounds) as running, gpt(running) as client:
            with handle.held("put"):
                async with meanwhile(client.responses.create(model=MODEL, input="hi")) as patient:

                    async def waits() -> bool:
                        return handle.begun["put"] == 1

                    assert await eventually(waits, within_s=5)
                    other = await client.responses.create(model=MODEL, input="hi")
                    assert other.store is False  # type: ignore[attr-defined]
                    assert not patient.done()
                    handle.let("put")
                    assert (await patient).store is True  # type: ignore[attr-defined]


async def test_a_background_response_is_not_read_again(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=1.0, tokens=5)
    async with (
        responses_handle(tmp_path) as handle,
        gateway(slow, handles={"responses": handle}) as running,
        gpt(running) as client,
    ):
        first = await client.responses.create(model=MODEL, input="hi")
        made = await client.responses.create(
            model=MODEL, input="on", previous_response_id=first.id, background=True
        )
        assert (await ended(client, made.id)).status == "completed"
        assert handle.begun["history"] == 1


async def ended(client: openai.AsyncOpenAI, response_id: str) -> Any:
    async def is_over() -> bool:
        return (await client.responses.retrieve(response_id)).status not in ("queued", "in_progress")

    assert await eventually(is_over, within_s=10)
    return await client.responses.retrieve(response_id)


async def test_a_response_says_when_it_was_complete(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        made = await client.responses.create(model=MODEL, input="hi")
        assert made.completed_at is not None
        assert made.created_at <= made.completed_at <= time.time()
        cut = await client.responses.create(model=MODEL, input="hi", max_output_tokens=1)
        assert (cut.status, cut.completed_at) == ("incomplete", None)


async def test_a_background_response_is_fetched_later(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        made = await client.responses.create(model=MODEL, input="hi", background=True)
        assert made.status == "queued"
        done = [event async for event in await client.responses.retrieve(made.id, stream=True)][-1]
        assert done.type == "response.completed"
        assert done.response.background is True
        assert len(done.response.output_text.split()) == FAST.tokens
        on = await client.responses.create(model=MODEL, input="on", previous_response_id=made.id)
        assert on.status == "completed"


async def test_a_background_response_is_cancelled_and_its_engine_is_free(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=20.0, tokens=10_000)
    async with responding(tmp_path, slow) as running, gpt(running) as client:
        stream = await client.responses.create(model=MODEL, input="hi", background=True, stream=True)
        created = await anext(aiter(stream))
        assert created.type == "response.created"
        cancelled = await client.responses.cancel(created.response.id)
        assert cancelled.status == "cancelled"
        await running.until_idle()
        assert (await client.responses.cancel(created.response.id)).status == "cancelled"
        with pytest.raises(openai.BadRequestError, match="cancelled: nothing can go on"):
            await client.responses.create(model=MODEL, input="on", previous_response_id=created.response.id)
        await stream.close()


async def test_a_background_response_that_fails_says_so(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="nobody", input="hi", background=True)
        async with responding(tmp_path / "short", SimSettings(max_model_len=4)) as short, gpt(short) as other:
            made = await other.responses.create(model=MODEL, input="a long text " * 9, background=True)
            last = [event async for event in await other.responses.retrieve(made.id, stream=True)][-1]
            assert last.type == "response.failed"
            failed = await other.responses.retrieve(made.id)
            assert failed.status == "failed"
            assert failed.error is not None
            assert "maximum context length" in failed.error.message


async def recent(running: Running, count: int) -> list[dict[str, Any]]:
    """The requests that asked a model, the oldest first, once there are so many."""
    found: list[dict[str, Any]] = []

    async def so() -> bool:
        async with running.http.get("/admin/requests") as response:
            newest = (await response.json())["requests"]
        found[:] = [each for each in reversed(newest) if each["path"] == RESPONSES]
        return len(found) >= count

    assert await eventually(so, within_s=10), found
    return found


async def test_a_background_response_has_one_record_under_the_id_of_its_request(tmp_path: Path) -> None:
    async with responding(tmp_path, FAST) as running, gpt(running) as client:
        named = {"x-request-id": "mine"}
        made = await client.responses.create(model=MODEL, input="hi", background=True, extra_headers=named)
        await ended(client, made.id)
        last = await client.responses.create(model=MODEL, input="hi")
        assert last.status == "completed"
        first, _ = await recent(running, 2)
        assert (first["id"], first["model"], first["output_tokens"]) == ("mine", MODEL, FAST.tokens + 1)


def test_a_detached_request_keeps_its_id() -> None:
    original = nobody()
    original.identity = Identity(DEFAULT_TENANT)
    detached = DetachedExchange(original, b"{}", Reading({}, None), lambda data: None)
    assert detached.request_id == original.request_id


async def test_the_record_of_a_background_response_says_how_it_ended(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=20.0, tokens=10_000, max_model_len=10_100)
    async with responding(tmp_path, slow) as running, gpt(running) as client:
        stream = await client.responses.create(model=MODEL, input="hi", background=True, stream=True)
        await client.responses.cancel((await anext(aiter(stream))).response.id)  # type: ignore[union-attr]
        await stream.close()
        (cancelled,) = await recent(running, 1)
        assert (cancelled["client_gone"], cancelled["error"]) == (True, None)
        made = await client.responses.create(model=MODEL, input="a long text " * 9000, background=True)
        assert (await ended(client, made.id)).status == "failed"
        _, failed = await recent(running, 2)
        assert (failed["outcome"], failed["error"]) == ("error", "upstream_refused")


async def test_bodies_of_background_responses_are_not_held_when_they_have_ended(tmp_path: Path) -> None:
    limits = {"max_held_bytes_per_tenant": 3000}
    async with responding(tmp_path, FAST, limits=limits) as running, gpt(running) as client:
        for _ in range(4):
            made = await client.responses.create(model=MODEL, input="x" * 1000, background=True)
            last = [event async for event in await client.responses.retrieve(made.id, stream=True)][-1]
            assert last.type == "response.completed"


async def test_a_store_that_is_away_for_a_moment_does_not_end_the_reports(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=5.0, tokens=10_000)
    async with (
        responses_handle(tmp_path) as handle,
        gateway(slow, handles={"responses": handle}, responses={"call_timeout_s": 0.2}) as running,
        gpt(running) as client,
    ):
        made = await client.responses.create(model=MODEL, input="hi", background=True)
        begun = handle.begun

        async def grown(method: str, above: int) -> bool:
            return begun[method] > above

        with handle.failing("put"):  # that it has begun cannot be stored
            assert await eventually(partial(grown, "put", begun["put"]), within_s=5)
            assert await eventually(partial(grown, "beat", begun["beat"]), within_s=5)
        assert await eventually(partial(grown, "beat", begun["beat"]), within_s=5)
        await client.responses.cancel(made.id)
        await running.until_idle()


async def test_a_background_response_that_cannot_be_stored_fails(tmp_path: Path) -> None:
    settings = {"max_entry_bytes": 2048}
    talkative = SimSettings(itl_ms=0.1, tokens=2000)
    async with responding(tmp_path, talkative, responses=settings) as running, gpt(running) as client:
        made = await client.responses.create(model=MODEL, input="hi", background=True)
        last = [event async for event in await client.responses.retrieve(made.id, stream=True)][-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert "max_entry_bytes" in last.response.error.message


async def test_who_waits_for_a_response_is_told_so_and_moves_no_record(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=60.0, tokens=10)
    async with (
        responses_handle(tmp_path) as handle,
        gateway(slow, handles={"responses": handle}, gateway={"keep_alive_s": 0.1}) as running,
        gpt(running) as client,
    ):
        made = await client.responses.create(model=MODEL, input="hi", background=True)
        path = f"{running.url}{RESPONSES}/{made.id}?stream=true"
        async with httpx.AsyncClient() as plain:
            told = (await plain.get(path)).text
        assert told.startswith(": ")
        assert told.count("event: response.completed") == 1
        assert handle.begun["get"] == 2
        assert handle.begun["status"] >= 1


async def test_the_response_of_a_dead_gateway_is_reported_as_failed(tmp_path: Path) -> None:
    """Its owner no longer reports: nothing else is known of it."""
    async with responses_handle(tmp_path) as handle, gateway(FAST, handles={"responses": handle}) as running:
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
        record = Record(
            id="resp_1",
            tenant=DEFAULT_TENANT,
            status="in_progress",
            response=json.dumps(response).encode(),
            input=b"[]",
            owner="dead",
        )
        await handle.target.store.put(record, [], time.time() - 2 * LEASE_S)
        async with gpt(running) as client:
            found = await client.responses.retrieve("resp_1")
            assert found.status == "failed"
            assert found.error is not None
            assert "is gone" in found.error.message


async def test_any_gateway_goes_on_with_it(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        handle = await stack.enter_async_context(responses_handle(tmp_path))
        handles = {"responses": handle}
        running = [await stack.enter_async_context(gateway(FAST, handles=handles)) for _ in range(2)]
        first, second = [await stack.enter_async_context(gpt(each)) for each in running]
        made = await first.responses.create(model=MODEL, input="hi")
        on = await second.responses.create(model=MODEL, input="on", previous_response_id=made.id)
        assert (await first.responses.retrieve(on.id)).previous_response_id == made.id


async def test_a_chain_keeps_to_its_engine_through_two_gateways(tmp_path: Path) -> None:
    """It names no session, so the id of its first response is its name."""
    fleet = [SimSettings(itl_ms=0, tokens=4)] * 4
    async with AsyncExitStack() as stack:
        handle = await stack.enter_async_context(responses_handle(tmp_path))
        two = [
            await stack.enter_async_context(gateway(*fleet, handles={"responses": handle})) for _ in range(2)
        ]
        for chain in range(4):
            served, previous = set(), None
            for turn in range(6):
                body = {"model": MODEL, "input": f"turn {turn} of {chain}", "previous_response_id": previous}
                answer = await two[turn % 2].send(body, RESPONSES)
                previous = answer.json["id"]
                served.add(answer.headers["x-served-by"])
                await two[turn % 2].post(f"other {chain} {turn}")
            assert len(served) == 1, (chain, served)


async def test_conversations_sent_whole_find_their_prefix_though_each_is_a_response_of_its_own(
    tmp_path: Path,
) -> None:
    async with responding(tmp_path, *[SimSettings(itl_ms=0, tokens=4)] * 4) as running:
        said = [{"role": "user", "content": "A long beginning. " * 300}]
        served = set()
        for turn in range(6):
            answer = await running.send({"model": MODEL, "input": said}, RESPONSES)
            served.add(answer.headers["x-served-by"])
            said.append({"role": "assistant", "content": f"answer {turn}"})
            said.append({"role": "user", "content": f"turn {turn}"})
            await running.post(f"other {turn}")
        assert len(served) == 1, served


async def test_without_its_store_a_response_is_answered_and_says_that_it_is_not_stored(
    tmp_path: Path,
) -> None:
    settings = {"call_timeout_s": 0.2}
    async with (
        responses_handle(tmp_path) as handle,
        gateway(FAST, handles={"responses": handle}, responses=settings) as running,
        gpt(running) as client,
    ):
        with handle.failing("put"), handle.failing("history"):
            made = await client.responses.create(model=MODEL, input="hi")
            assert made.store is False  # type: ignore[attr-defined]
            assert len(made.output_text.split()) == FAST.tokens
            with pytest.raises(openai.InternalServerError) as caught:
                await client.responses.create(model=MODEL, input="on", previous_response_id="resp_x")
            assert caught.value.status_code == 503
        assert (await client.responses.create(model=MODEL, input="hi")).store is True  # type: ignore[attr-defined]


async def test_a_store_that_comes_back_in_time_is_waited_for(tmp_path: Path) -> None:
    async with (
        responses_handle(tmp_path) as handle,
        gateway(FAST, handles={"responses": handle}) as running,
        gpt(running) as client,
    ):
        made = await client.responses.create(model=MODEL, input="hi")
        going_on = client.responses.create(model=MODEL, input="on", previous_response_id=made.id)
        with handle.failing("history"):
            async with meanwhile(going_on) as task:

                async def asked_again() -> bool:
                    return handle.begun["history"] >= 2

                assert await eventually(asked_again, within_s=5)
                handle.mend("history")
                assert (await task).status == "completed"


async def test_where_nothing_is_stored_requests_are_still_answered() -> None:
    async with gateway(FAST) as running, gpt(running) as client:
        made = await client.responses.create(model=MODEL, input="hi")
        assert made.store is False  # type: ignore[attr-defined]
        with pytest.raises(openai.BadRequestError, match=r"responses\.enabled"):
            await client.responses.create(model=MODEL, input="on", previous_response_id=made.id)
        with pytest.raises(openai.NotFoundError, match=r"responses\.enabled"):
            await client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError, match=r"responses\.enabled"):
            await client.conversations.create()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        ({"input": [{"role": "user", "content": [{"type": "video"}]}]}, "input[0].content[0].type"),
        ({"input": "x", "tools": [{"type": "file_search"}]}, "tools[0].type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice"),
        (
            {
                "input": "x",
                "tools": [WEATHER, {"type": "web_search"}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "web_search"}],
                },
            },
            "tool_choice",
        ),
        ({"input": "x", "conversation": {}}, "conversation.id"),
        ({"input": "x", "conversation": {"id": 5}}, "conversation.id"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "previous_response_id": "a", "conversation": "b"}, "conversation"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": [{"type": ["message"], "role": "user", "content": "x"}]}, "input[0].type"),
        ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"type": "function_call_output", "call_id": {"a": 1}, "output": "x"}]},
            "input[0].call_id",
        ),
        ({"input": "x", "tool_choice": {"type": ["a"]}}, "tool_choice"),
        ({"input": "x", "tool_choice": {"type": "function", "name": {"a": 1}}}, "tool_choice"),
        ({"input": "x", "metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"input": "x", "metadata": {"a": "x" * 513}}, "metadata"),
        ({}, "input"),
    ],
)
async def test_bad_input_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    async with responding(tmp_path, FAST) as running:
        answer = await running.send({"model": MODEL, **fields}, RESPONSES)
        assert answer.status == 400, answer.body
        assert answer.error["param"] == param
        assert running.requests() == [0]


async def test_a_chain_is_bounded(tmp_path: Path) -> None:
    settings = {"max_chain": 2}
    async with responding(tmp_path, FAST, responses=settings) as running, gpt(running) as client:
        last = None
        for _ in range(3):
            made = await client.responses.create(model=MODEL, input="hi", previous_response_id=last)
            last = made.id
        with pytest.raises(openai.BadRequestError, match=r"responses\.max_chain"):
            await client.responses.create(model=MODEL, input="hi", previous_response_id=last)


async def test_codex_sends_tools_of_its_own_kinds(tmp_path: Path) -> None:
    plan = [
        {
            "calls": [
                {"name": "apply_patch", "arguments": {"input": "*** Begin Patch"}},
                {"name": "agents__close", "arguments": {"id": "1"}},
                {"name": "local_shell", "arguments": {"command": ["ls"]}},
            ]
        },
        {"text": "done"},
    ]
    tools: Any = [
        {
            "type": "custom",
            "name": "apply_patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
        },
        {
            "type": "namespace",
            "name": "agents",
            "tools": [{"type": "function", "name": "close", "parameters": {"type": "object"}}],
        },
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": False},
    ]
    developer = {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be brief."}],
    }
    begun: Any = [
        developer,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
    ]
    engine = SimSettings(itl_ms=1.0, plan=json.dumps(plan), keep_bodies=3)
    async with responding(tmp_path, engine) as running, gpt(running) as client:
        async with client.responses.stream(model=MODEL, input=begun, tools=tools, store=False) as stream:
            kinds = [event.type async for event in stream]
            made = await stream.get_final_response()
        assert "response.custom_tool_call_input.done" in kinds
        patch, close, shell = made.output
        assert patch.type == "custom_tool_call"
        assert patch.input == "*** Begin Patch"
        assert close.type == "function_call"
        assert (close.namespace, close.name) == ("agents", "close")
        assert shell.type == "local_shell_call"
        assert shell.action.command == ["ls"]
        sent = json.loads(running.engines[0].stats().seen[-1]["body"])
        assert [tool["function"]["name"] for tool in sent["tools"]] == [
            "apply_patch",
            "agents__close",
            "local_shell",
        ]
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
        results = [
            {"type": f"{item.type}_output", "call_id": item.call_id, "output": "ok"} for item in made.output
        ]
        back: Any = [*begun, *(item.to_dict() for item in made.output), *results]
        end = await client.responses.create(model=MODEL, input=back, tools=tools, store=False)
        assert end.output_text == "done"
