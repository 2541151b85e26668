"""Requests that fail on their way to vLLM's engine, with vLLM's own front end, and no engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.serial_utils import MsgpackEncoder

from deployments.engine.vllm.refusals import Refusals

GUIDED = SamplingParams(structured_outputs=StructuredOutputsParams(grammar='root ::= "a"'))


class EngineCore:
    """Encodes as the real one does, and sends nothing."""

    def __init__(self) -> None:
        self.aborted: list[str] = []
        self.sends: Callable[[], Any] = lambda: None

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        MsgpackEncoder().encode(request)
        self.sends()

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self.aborted += request_ids


class Client:
    """As much of an ``AsyncLLM`` as takes requests; its methods are vLLM's own."""

    _add_request = AsyncLLM._add_request
    abort = AsyncLLM.abort
    log_requests = False

    def __init__(self, kv_transfer_config: Any = None, outputs: tuple[RequestOutput, ...] = ()) -> None:
        self.vllm_config = SimpleNamespace(kv_transfer_config=kv_transfer_config)
        self.forgotten: list[str] = []
        cache = SimpleNamespace(invalidate=self.forgotten.append)
        self.renderer = SimpleNamespace(mm_processor_cache=cache)
        self.output_processor = OutputProcessor(None, log_stats=False)
        self.engine_core = EngineCore()
        self._outputs = outputs
        self.ended = False

    def check_admission(self, request_id: str) -> None:
        """There is room."""

    async def generate(self, *_: Any) -> AsyncIterator[RequestOutput]:
        try:
            for output in self._outputs:
                yield output
        finally:
            self.ended = True

    def made(self) -> Any:
        Refusals(self)
        return self


def request(name: str = "r-1", **params: Any) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=[1, 2],
        mm_features=None,
        sampling_params=SamplingParams(detokenize=False, **params),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        external_req_id=name,
    )


def queue(of: EngineCoreRequest) -> RequestOutputCollector:
    assert of.sampling_params is not None
    return RequestOutputCollector(of.sampling_params.output_kind, of.request_id)


def output(finish_reason: str | None) -> RequestOutput:
    choice = CompletionOutput(0, "a", [1], None, None, finish_reason=finish_reason)
    return RequestOutput("r-1", None, [1], None, [choice], finished=finish_reason is not None)


async def test_an_integer_of_more_than_64_bits_is_the_clients_fault_and_leaves_nothing() -> None:
    client = Client().made()
    wrong = request(extra_args={"kv_transfer_params": {"a": 2**64}})
    with pytest.raises(VLLMValidationError, match="An integer of the request is out of range"):
        await client._add_request(wrong, "hi", None, 0, queue(wrong))
    assert client.output_processor.get_num_unfinished_requests() == 0
    assert client.engine_core.aborted == ["r-1"]


async def test_another_request_of_the_same_engine_stays() -> None:
    client = Client().made()
    good, wrong = request("good"), request("wrong", extra_args={"a": 2**64})
    await client._add_request(good, "hi", None, 0, queue(good))
    with pytest.raises(VLLMValidationError):
        await client._add_request(wrong, "hi", None, 0, queue(wrong))
    assert list(client.output_processor.request_states) == ["good"]


async def test_of_several_choices_none_stays() -> None:
    client = Client().made()
    whole = request(n=2)
    parent = ParentRequest(whole)
    collector = queue(whole)
    for index, extra in enumerate(({}, {"a": 2**64})):
        name, params = parent.get_child_info(index)
        child = request(name)
        child.sampling_params = params
        params.extra_args = extra
        if not extra:
            await client._add_request(child, "hi", parent, index, collector)
            continue
        with pytest.raises(VLLMValidationError):
            await client._add_request(child, "hi", parent, index, collector)
    assert client.output_processor.get_num_unfinished_requests() == 0
    assert len(client.engine_core.aborted) == 2


async def test_a_client_that_leaves_while_its_request_is_sent_leaves_nothing() -> None:
    client = Client().made()

    def cancelled() -> None:
        raise asyncio.CancelledError

    client.engine_core.sends = cancelled
    whole = request()
    with pytest.raises(asyncio.CancelledError):
        await client._add_request(whole, "hi", None, 0, queue(whole))
    assert client.output_processor.get_num_unfinished_requests() == 0
    assert client.engine_core.aborted == ["r-1"]


async def test_a_grammar_that_the_engine_cannot_follow_is_the_clients_fault() -> None:
    client = Client(outputs=(output(None), output("error"))).made()
    answer = client.generate("hi", GUIDED, "r-1")
    await anext(answer)
    with pytest.raises(VLLMValidationError, match="cannot follow the grammar"):
        await anext(answer)
    assert client.ended


async def test_a_request_without_a_grammar_that_fails_is_not() -> None:
    client = Client(outputs=(output("error"),)).made()
    assert len([each async for each in client.generate("hi", SamplingParams(), "r-1")]) == 1


async def test_where_caches_are_sent_between_engines_an_error_may_be_theirs() -> None:
    client = Client(kv_transfer_config=object(), outputs=(output("error"),)).made()
    assert len([each async for each in client.generate("hi", GUIDED, "r-1")]) == 1


async def test_a_picture_that_was_not_sent_is_sent_with_the_next_request() -> None:
    client = Client().made()
    wrong = request(extra_args={"a": 2**64})
    picture, sound = (
        SimpleNamespace(mm_hash="p", identifier="i"),
        SimpleNamespace(mm_hash=None, identifier="s"),
    )
    wrong.mm_features = [picture, sound]
    client.engine_core.add_request_async = overflows
    with pytest.raises(VLLMValidationError):
        await client._add_request(wrong, "hi", None, 0, queue(wrong))
    assert client.forgotten == ["p", "s"]


async def overflows(_: EngineCoreRequest) -> None:
    raise OverflowError


@pytest.mark.parametrize(
    "prompt",
    [
        {"type": "multimodal", "prompt_token_ids": [1]},
        {"prompt": "hi", "multi_modal_data": {"image": None}},
        SimpleNamespace(mm_features=[object()]),
    ],
)
async def test_a_picture_that_the_engine_has_lost_is_not_the_grammars_fault(prompt: Any) -> None:
    """vLLM asks for it again where the same comes once more."""
    client = Client(outputs=(output("error"),)).made()
    assert len([each async for each in client.generate(prompt, GUIDED, "r-1")]) == 1


async def test_a_guided_answer_that_is_read_no_longer_is_closed() -> None:
    client = Client(outputs=(output(None), output("stop"))).made()
    answer = client.generate("hi", GUIDED, "r-1")
    await anext(answer)
    await answer.aclose()
    assert client.ended
