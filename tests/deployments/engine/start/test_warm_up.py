"""Warm-up requests over real HTTP, against an app that remembers them and a clock that it moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from deployments.engine.start.warm_up import (
    Shapes,
    WarmUpError,
    batch_sizes,
    need_audio_packages,
    pooled_sizes,
    prompt_lengths,
    warm_up,
)
from deployments.wire.listener import PrivateListener

SMALL = Shapes(context=4096, batched_tokens=2048, sequences=16)
LARGE = Shapes(context=131_072, batched_tokens=8192, sequences=256)
TOKENS = list(range(100, 300))


class Engine:
    """Answers like vLLM; each token of a prompt takes ``token_s`` of its clock."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.token_s = 0.0
        self.now = 0.0
        self.fails_at = ""
        self.event = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        self.seen.append((scope["path"], body))
        prompt = body.get("prompt")
        self.now += self.token_s * (len(prompt) if isinstance(prompt, list) else 1)
        status = 500 if self.fails_at and self.fails_at in json.dumps(body) else 200
        answer = {"tokens": TOKENS} if scope["path"] == "/tokenize" else {"error": "no kernel for this"}
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": self.event or json.dumps(answer).encode()})

    @property
    def prompts(self) -> list[list[int]]:
        return [body["prompt"] for path, body in self.seen if path == "/v1/completions"]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def listener(engine: Engine) -> AsyncIterator[PrivateListener]:
    listener = PrivateListener(engine, "127.0.0.1")
    listener.start()
    yield listener
    await listener.stop(0.0)


async def run(
    listener: PrivateListener, engine: Engine, shapes: Shapes = SMALL, budget_s: float = 20.0
) -> dict[str, float]:
    clock = lambda: engine.now  # noqa: E731
    return await warm_up(listener.address, "m", shapes, budget_s=budget_s, clock=clock)


@pytest.mark.parametrize(
    ("shapes", "lengths"),
    [
        (SMALL, [256, 1024, 2560]),
        (LARGE, [256, 1024, 4096, 10_240]),
        (Shapes(context=2048, batched_tokens=2048, sequences=4), [256, 1022]),
        (Shapes(context=64, batched_tokens=2048, sequences=4), [30]),
    ],
)
def test_prompts_grow_to_one_that_goes_in_by_chunks_where_the_context_allows(
    shapes: Shapes, lengths: list[int]
) -> None:
    assert prompt_lengths(shapes) == lengths
    assert lengths[-1] < shapes.context


@pytest.mark.parametrize(
    ("sequences", "sizes"),
    [(1, []), (2, [2]), (4, [4]), (16, [4, 16]), (20, [4, 16, 20]), (256, [4, 16, 64])],
)
def test_batches_grow_to_what_the_engine_runs_at_once_or_the_bound(sequences: int, sizes: list[int]) -> None:
    assert batch_sizes(Shapes(context=4096, batched_tokens=2048, sequences=sequences)) == sizes


async def test_every_shape_is_sent_and_timed(listener: PrivateListener, engine: Engine) -> None:
    took = await run(listener, engine)
    assert list(took) == [
        "first request",
        "sampling",
        "whole answer",
        "structured output",
        "prompt of 256 tokens",
        "prompt of 1024 tokens",
        "prompt of 2560 tokens",
        "batch of 4",
        "batch of 16",
    ]
    assert [len(prompt) for prompt in engine.prompts] == [256, 1024, 2560]
    assert all(body["model"] == "m" for _, body in engine.seen)


async def test_an_engine_without_code_for_a_size_gets_few_requests_and_most_of_them_at_once(
    listener: PrivateListener, engine: Engine
) -> None:
    took = await run(listener, engine, replace(SMALL, differs_by_size=False))
    assert list(took) == ["first request", "sampling, whole answer", "structured output"]
    assert pooled_sizes(replace(SMALL, tasks=("embed",), differs_by_size=False)) == [1]


async def test_no_prompt_is_the_beginning_of_another(listener: PrivateListener, engine: Engine) -> None:
    await run(listener, engine, LARGE)
    beginnings = {tuple(prompt[:16]) for prompt in engine.prompts}
    assert len(beginnings) == len(engine.prompts) == 4


async def test_speculation_and_structured_output_are_used_once_where_they_are_on(
    listener: PrivateListener, engine: Engine
) -> None:
    both = Shapes(context=4096, batched_tokens=2048, sequences=4, speculates=True, structured=True)
    took = await run(listener, engine, both)
    assert {"speculation", "structured output"} <= set(took)
    shaped = [body for _, body in engine.seen if "response_format" in body]
    assert len(shaped) == 1
    assert shaped[0]["response_format"]["type"] == "json_schema"


async def test_structured_output_that_does_not_work_stops_a_start_only_where_it_was_asked_for(
    listener: PrivateListener, engine: Engine
) -> None:
    engine.fails_at = "response_format"
    assert "structured output" not in await run(listener, engine)
    with pytest.raises(WarmUpError, match="structured output"):
        await run(listener, engine, replace(SMALL, structured=True))


async def test_the_first_schema_is_ours_so_that_no_client_chooses_the_grammar_compiler(
    listener: PrivateListener, engine: Engine
) -> None:
    took = await run(listener, engine)
    assert "structured output" in took
    assert len([body for _, body in engine.seen if "response_format" in body]) == 1


async def test_what_would_not_end_within_the_budget_is_left_out(
    listener: PrivateListener, engine: Engine
) -> None:
    engine.token_s = 0.01  # 2.6 s for 256 tokens, 10.2 s for 1,024, 25.6 s for 2,560
    took = await run(listener, engine, budget_s=20.0)
    assert "prompt of 1024 tokens" in took
    assert "prompt of 2560 tokens" not in took
    assert "batch of 4" in took


async def test_without_a_budget_the_requests_that_find_errors_are_sent_all_the_same(
    listener: PrivateListener, engine: Engine
) -> None:
    engine.token_s = 0.01
    took = await run(listener, engine, budget_s=0.0)
    assert list(took) == ["first request", "sampling", "whole answer", "structured output"]


async def test_a_failure_names_its_kind_the_status_and_the_engines_words(
    listener: PrivateListener, engine: Engine
) -> None:
    engine.fails_at = "top_k"
    with pytest.raises(WarmUpError, match=r"warm-up \(sampling\): answered 500: .*no kernel for this"):
        await run(listener, engine)


async def test_a_stream_that_begins_well_and_ends_with_an_error_is_a_failure(
    listener: PrivateListener, engine: Engine
) -> None:
    engine.event = b'data: {"choices": []}\n\ndata: {"error": {"message": "the core died"}}\n\n'
    with pytest.raises(WarmUpError, match=r"warm-up \(first request\): answered 200: data: .*the core died"):
        await run(listener, engine)


async def test_a_listener_that_is_gone_is_named(listener: PrivateListener, engine: Engine) -> None:
    await listener.stop(0.0)
    with pytest.raises(WarmUpError, match=r"warm-up \(first request\): NoConnection"):
        await run(listener, engine)


def test_a_model_of_recordings_needs_the_packages_that_read_them(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WarmUpError, match=r"without soundfile and av: pip install 'promptly-serve\[audio\]'"):
        need_audio_packages(("transcription",), lambda _: None)
    need_audio_packages(("transcription",), lambda _: "there")
    need_audio_packages(("generate",), lambda _: None)
    assert not caplog.records
    need_audio_packages(("generate", "transcription"), lambda _: None)  # it can still chat
    assert "promptly-serve[audio]" in caplog.text
