"""Wherever an engine dies, the client sees the stream that one engine would have sent."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

import pytest
from samples import CHAT, COMPLETIONS, chat_request, completion_request
from scripted_vllm import CONTEXT, END_OF_TEXT, ByteTokenizer, ScriptedEngine, delivered, settle, undisturbed

from serve_app.openai.continuation import Ending, EngineRequest, ResumableChat, ResumableStream, TokenLimits
from serve_app.openai.requests import Endpoint, ParsedRequest
from serve_app.openai.usage import UsageFilter

LIMITS = TokenLimits(context=CONTEXT)
PROMPT = ByteTokenizer().encode("Größe? 👍")
USAGE = {"stream_options": {"include_usage": True}}

TEXTS = {
    "ascii": "one two\n",
    "beyond ascii": "é 東👩‍👧!",
    "escapes": 'a"\\"b\\\n\x00\u2028"token_ids":[1]}]}\n\n',
    "nothing": "",
}


def make_request(endpoint: Endpoint, **fields: Any) -> ParsedRequest:
    known = {"stream": True, "temperature": 0, "max_tokens": 200}
    build = chat_request if endpoint is CHAT else completion_request
    return build(**(known | fields))


def make_engine(text: str = TEXTS["ascii"], **fields: Any) -> ScriptedEngine:
    return ScriptedEngine(PROMPT, [*ByteTokenizer().encode(text), END_OF_TEXT], **fields)


def same_but_for_ids(stream: bytes) -> bytes:
    """The scripted engine numbers its responses."""
    return re.sub(
        rb'cmpl-\d+","object":"([a-z._]+)","created":\d+', rb'cmpl-0","object":"\1","created":0', stream
    )


def payloads(stream: bytes) -> list[dict[str, Any]]:
    *events, done, rest = stream.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def text_of(stream: bytes) -> str:
    choices = [choice for event in payloads(stream) for choice in event["choices"]]
    return "".join(choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices)


# ---- nothing happens ----


@pytest.mark.parametrize("tokens_per_chunk", [1, 3])
@pytest.mark.parametrize("options", [{}, USAGE], ids=["", "usage"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_whole_stream_passes_as_if_no_tokens_had_been_asked_for(
    endpoint: Endpoint, text: str, options: dict[str, Any], tokens_per_chunk: int
) -> None:
    request, engine = make_request(endpoint, **options), make_engine(text, tokens_per_chunk=tokens_per_chunk)
    expected = same_but_for_ids(undisturbed(request, engine))
    for piece in (1, 7, 100, 1 << 20):
        assert same_but_for_ids(delivered(request, engine, piece=piece)) == expected
    assert text_of(expected) == text


def watching(kind: type[Any]) -> Any:
    """The same with what went the short way."""

    class Watched(kind):
        def __init__(self, request: ParsedRequest) -> None:
            super().__init__(request)
            self.taken: list[bytes] = []

        def _took(self, ids: bytes) -> bool:
            took: bool = super()._took(ids)
            self.taken += [ids] if took else []
            return took

    return Watched


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(
    ("kind", "endpoint"), [(ResumableStream, CHAT), (ResumableStream, COMPLETIONS), (ResumableChat, CHAT)]
)
def test_however_its_bytes_arrive_a_stream_passes_the_same_and_knows_its_tokens(
    kind: type[ResumableStream | ResumableChat], endpoint: Endpoint, text: str
) -> None:
    """A whole event with a token goes a short way, which parts of one and several together do not."""
    request, engine = make_request(endpoint, **USAGE), make_engine(text)
    events = engine.events(ResumableStream(request).opening)
    halves = [half for event in events for half in (event[:40], event[40:])]
    seen = []
    for pieces in (events, halves, [b"".join(events)]):
        stream = kind(request)
        passed = b"".join(map(stream.feed, pieces))
        seen.append((passed, stream.done, stream._pieces, stream._answer_tokens))
    assert seen[0] == seen[1] == seen[2]
    watched = watching(kind)(request)
    for event in events:
        watched.feed(event)
    assert len(watched.taken) >= len(text) - 1, "every character goes the short way, but the last one"
    assert seen[0][3] >= len(engine.answer) - 1, "the last one may end the answer"


@pytest.mark.parametrize("endpoint", Endpoint)
def test_every_event_is_passed_on_as_soon_as_it_is_whole(endpoint: Endpoint) -> None:
    request, engine = make_request(endpoint, **USAGE), make_engine()
    stream = ResumableStream(request)
    for event, expected in zip(
        engine.events(stream.opening),
        engine.events(EngineRequest(endpoint, dict(request.fields))),
        strict=True,
    ):
        assert not stream.done
        assert stream.feed(event[:-1]) == b""
        assert same_but_for_ids(stream.feed(event[-1:])) == same_but_for_ids(expected)
    assert stream.done


# ---- an engine dies ----


@pytest.mark.parametrize("options", [{}, USAGE], ids=["", "usage"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_cut_anywhere_is_the_undisturbed_one(
    endpoint: Endpoint, text: str, options: dict[str, Any]
) -> None:
    request, engine = make_request(endpoint, **options), make_engine(text)
    expected = undisturbed(request, engine)
    for cut in cuts_of(engine.events(ResumableStream(request).opening)):
        got = delivered(request, engine, cut)
        assert same_but_for_ids(got) == same_but_for_ids(_as_ended(got, expected)), cut


def cuts_of(events: list[bytes]) -> list[int]:
    """Before, at and after the end of every event, and many places within."""
    ends = [0, *accumulate(map(len, events))]
    near = {end + offset for end in ends for offset in (-2, -1, 0, 1)}
    return sorted(cut for cut in near | set(range(0, ends[-1], 17)) if 0 <= cut < ends[-1])


def _as_ended(got: bytes, expected: bytes) -> bytes:
    """A usage chunk of ours cannot name the fingerprint that only the lost one named."""
    mark = b'"completion_tokens":'
    named = mark in got and b'"system_fingerprint"' in got
    return expected if named or mark not in got else re.sub(rb',"system_fingerprint":"[^"]*"', b"", expected)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_cut_again_and_again_is_the_undisturbed_one(endpoint: Endpoint) -> None:
    request, engine = make_request(endpoint), make_engine(TEXTS["beyond ascii"])
    expected = same_but_for_ids(undisturbed(request, engine))
    for first in range(0, 3000, 211):
        for second in range(0, 1500, 97):
            got = delivered(request, engine, first, second, second // 2, 500)
            assert same_but_for_ids(got) == expected, (first, second)


@pytest.mark.parametrize("tokens_per_chunk", [2, 3, 4, 7])
@pytest.mark.parametrize("endpoint", Endpoint)
def test_chunks_of_several_tokens_are_continued_to_the_same_text_and_usage(
    endpoint: Endpoint, tokens_per_chunk: int
) -> None:
    """Where the cut falls into a chunk, the chunks after it begin elsewhere; what they say is the same."""
    text = TEXTS["beyond ascii"] * 2
    request = make_request(endpoint, **USAGE)
    engine = make_engine(text, tokens_per_chunk=tokens_per_chunk)
    expected = payloads(undisturbed(request, engine))
    size = len(b"".join(engine.events(ResumableStream(request).opening)))
    for cut in range(0, size, 13):
        for second in (1 << 20, cut % 700):
            got = delivered(request, engine, cut, second)
            assert text_of(got) == text, (cut, second)
            assert payloads(got)[-1]["usage"] == expected[-1]["usage"]
            assert payloads(got)[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("endpoint", Endpoint)
def test_an_answer_that_ends_for_its_length_ends_there(endpoint: Endpoint) -> None:
    request, engine = make_request(endpoint, max_tokens=5, **USAGE), make_engine("é é é é")
    expected = undisturbed(request, engine)
    assert b'"length"' in expected
    for cut in cuts_of(engine.events(ResumableStream(request).opening)):
        got = delivered(request, engine, cut)
        assert same_but_for_ids(got) == same_but_for_ids(_as_ended(got, expected)), cut


@pytest.mark.parametrize(
    "limits", [LIMITS, TokenLimits(context=len(PROMPT) + 6), TokenLimits(CONTEXT, default=6)]
)
def test_a_chat_without_a_limit_ends_at_the_engines(limits: TokenLimits) -> None:
    request, engine = make_request(CHAT, max_tokens=None), make_engine("twelve bytes")
    opening = ResumableStream(request).opening
    cut = b"".join(engine.events(opening)).index(b'"e"')
    stream = ResumableStream(request)
    stream.feed(b"".join(engine.events(opening))[:cut])
    step = stream.resume(limits)
    assert isinstance(step, EngineRequest)
    allowed = limits.answer_tokens(request, len(PROMPT))
    assert allowed is not None
    assert step.fields["max_tokens"] == allowed - 2


def test_a_usage_chunk_that_only_the_gateway_wants_can_be_filtered_after_a_cut() -> None:
    request, engine = make_request(CHAT), make_engine()
    stream, usage_filter = ResumableStream(request, include_usage=True), UsageFilter()
    got = usage_filter.feed(stream.feed(b"".join(engine.events(stream.opening))[:900]))
    step = stream.resume(LIMITS)
    assert isinstance(step, EngineRequest)
    rest = stream.feed(b"".join(engine.events(step)))
    assert rest.count(b'"completion_tokens":9') == 1
    got += usage_filter.feed(rest)
    assert text_of(got) == TEXTS["ascii"]
    assert b"usage" not in got


# ---- what the next engine is asked for ----


def cut_after(request: ParsedRequest, engine: ScriptedEngine, chunks: int) -> ResumableStream:
    """A stream whose engine died after so many chunks of text."""
    stream = ResumableStream(request)
    first = 1 if request.endpoint is CHAT else 0
    stream.feed(b"".join(engine.events(stream.opening)[: chunks + first]))
    return stream


def test_the_first_engine_is_asked_what_the_client_asked_and_for_the_tokens() -> None:
    request = make_request(CHAT, top_p=0.5)
    assert ResumableStream(request).opening == EngineRequest(
        CHAT, {**request.fields, "return_token_ids": True}
    )
    with_usage = ResumableStream(request, include_usage=True).opening
    assert with_usage.fields["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_next_engine_is_asked_to_go_on_from_the_tokens_sent(endpoint: Endpoint) -> None:
    sampling = {
        "temperature": 0.7,
        "top_p": 0.9,
        "stop_token_ids": [5],
        "ignore_eos": True,
        "logit_bias": {"1": 2},
    }
    shaping = {"user": "u", "add_special_tokens": True}
    request = make_request(endpoint, max_tokens=50, min_tokens=9, **sampling, **shaping)
    step = cut_after(request, make_engine("twelve bytes"), 4).resume(LIMITS)
    assert step == EngineRequest(
        COMPLETIONS,
        {
            "model": "m",
            "prompt": [*PROMPT, *b"twel"],
            "max_tokens": 46,
            "min_tokens": 5,
            "stream": True,
            "return_token_ids": True,
            **sampling,
        },
    )


def test_usage_is_asked_for_again() -> None:
    request = make_request(CHAT, **USAGE)
    step = cut_after(request, make_engine(), 2).resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert step.fields["stream_options"] == {"include_usage": True}


def test_the_least_number_of_tokens_is_never_negative() -> None:
    step = cut_after(make_request(CHAT, min_tokens=2), make_engine(), 4).resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert step.fields["min_tokens"] == 0


def test_asked_again_before_anything_came_the_answer_is_the_same() -> None:
    stream = cut_after(make_request(CHAT), make_engine(TEXTS["beyond ascii"]), 4)
    assert stream.resume(LIMITS) == stream.resume(LIMITS)


def test_after_the_role_alone_the_prompt_is_continued() -> None:
    step = cut_after(make_request(CHAT), make_engine(), 0).resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert (step.endpoint, step.fields["prompt"]) == (COMPLETIONS, PROMPT)


@pytest.mark.parametrize("sent", [b"", b'data: {"id"', b": keep-alive\n\n"])
@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_of_which_nothing_was_passed_on_begins_anew(endpoint: Endpoint, sent: bytes) -> None:
    request, engine = make_request(endpoint), make_engine()
    stream = ResumableStream(request)
    stream.feed(sent)
    assert stream.resume(LIMITS) == stream.opening
    assert text_of(stream.feed(b"".join(engine.events(stream.opening)))) == TEXTS["ascii"]


def test_a_chat_without_a_limit_needs_the_engines() -> None:
    request = make_request(CHAT, max_tokens=None)
    assert cut_after(request, make_engine(), 2).resume(TokenLimits()) is None
    assert cut_after(make_request(CHAT), make_engine(), 2).resume(TokenLimits()) is not None


def test_an_answer_that_has_all_its_tokens_is_ended() -> None:
    """An engine says that the length is reached with the last token; should it not, nothing is asked."""
    stream = cut_after(make_request(CHAT, max_tokens=None, **USAGE), make_engine(), 3)
    step = stream.resume(TokenLimits(context=len(PROMPT) + 3))
    assert isinstance(step, Ending)
    last, usage = payloads(step.events)
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == {
        "prompt_tokens": len(PROMPT),
        "total_tokens": len(PROMPT) + 3,
        "completion_tokens": 3,
    }
    assert stream.done


def test_a_stream_that_is_done_has_nothing_left_to_say() -> None:
    """A connection can break after its last event."""
    engine = make_engine()
    stream = ResumableStream(make_request(CHAT, **USAGE))
    stream.feed(b"".join(engine.events(stream.opening)))
    assert stream.resume(LIMITS) == Ending(b"")


# ---- characters of several tokens ----


def test_tokens_without_text_yet_are_generated_again() -> None:
    step = cut_after(make_request(CHAT), make_engine("a👍b"), 4).resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert step.fields["prompt"] == [*PROMPT, *b"a"]


@pytest.mark.parametrize(
    ("text", "chunks", "shown"),
    [("aé", 1, b"a"), ("abc", 1, b"ab"), ("a👍", 2, b"a"), ("ab👍c", 3, "ab👍".encode()), ("aéb", 1, b"a")],
)
def test_what_is_shown_of_a_chunk_of_two_tokens_is_settled_by_its_text(
    text: str, chunks: int, shown: bytes
) -> None:
    engine = make_engine(text, tokens_per_chunk=2)
    stream = cut_after(make_request(CHAT), engine, chunks)
    assert stream.unsettled
    assert stream.resume(LIMITS) is None
    settle(stream, engine)
    step = stream.resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert step.fields["prompt"] == [*PROMPT, *shown]


def test_a_chunk_of_one_token_and_its_text_settles_everything_before_it() -> None:
    engine = make_engine("abcde", tokens_per_chunk=2)
    stream = cut_after(make_request(CHAT), engine, 2)
    assert stream.unsettled == [*b"abcd"]
    stream.feed(engine.events(stream.opening)[1].replace(b"[97,98]", b"[99]"))
    assert stream.unsettled == []


# ---- an engine says that it failed ----

FAILURE = (
    b'data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root '
    b'cause.", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_an_engines_own_error_is_not_passed_on(endpoint: Endpoint) -> None:
    request, engine = make_request(endpoint), make_engine()
    stream = ResumableStream(request)
    events = engine.events(stream.opening)
    got = stream.feed(b"".join(events[:4]) + FAILURE + b"data: [DONE]\n\n")
    assert stream.failure is not None
    assert json.loads(stream.failure)["error"]["code"] == 500
    assert not stream.done
    assert stream.feed(b"data: [DONE]\n\n") == b""
    step = stream.resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert stream.failure is None
    got += stream.feed(b"".join(engine.events(step)))
    assert same_but_for_ids(got) == same_but_for_ids(undisturbed(request, engine))


@pytest.mark.parametrize("reason", [b'"abort"', b'"error"'])
@pytest.mark.parametrize("endpoint", Endpoint)
def test_an_aborted_answer_is_a_failure(endpoint: Endpoint, reason: bytes) -> None:
    request, engine = make_request(endpoint), make_engine()
    stream = ResumableStream(request)
    events = engine.events(stream.opening)
    aborted = events[-2].replace(b'"stop"', reason)
    assert aborted != events[-2]
    got = stream.feed(b"".join(events[:4]) + aborted + events[-1])
    assert stream.failure is not None
    assert reason not in got
    step = stream.resume(LIMITS)
    assert isinstance(step, EngineRequest)
    got += stream.feed(b"".join(engine.events(step)))
    assert same_but_for_ids(got) == same_but_for_ids(undisturbed(request, engine))


def test_a_failure_before_anything_was_passed_on_begins_anew() -> None:
    stream = ResumableStream(make_request(CHAT))
    assert stream.feed(FAILURE) == b""
    assert stream.failure is not None
    assert stream.resume(LIMITS) == stream.opening
    assert stream.failure is None


def test_comments_pass_in_every_engines_stream() -> None:
    request, engine = make_request(CHAT), make_engine()
    stream = ResumableStream(request)
    comment = b": keep-alive\n\n"
    assert stream.feed(comment + engine.events(stream.opening)[0]).startswith(comment)
    step = stream.resume(LIMITS)
    assert isinstance(step, EngineRequest)
    assert stream.feed(comment) == comment


# ---- what cannot be continued ----


def chat_chunk(choice: dict[str, Any], **fields: Any) -> bytes:
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return (
        b"data: "
        + json.dumps(value | {"choices": [choice]} | fields, separators=(",", ":")).encode()
        + b"\n\n"
    )


def plain_choice(**fields: Any) -> dict[str, Any]:
    known = {
        "index": 0,
        "delta": {"content": "x"},
        "logprobs": None,
        "finish_reason": None,
        "token_ids": [1, 2],
    }
    return known | fields


TOOL_CALL = {
    "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]
}
MORE_THAN_TEXT = {
    "log-probabilities": plain_choice(logprobs={"content": []}),
    "another choice": plain_choice(index=1),
    "a tool call": plain_choice(delta=TOOL_CALL),
    "reasoning": plain_choice(delta={"reasoning": "hm"}),
    "reasoning and text": plain_choice(delta={"reasoning": "hm", "content": "x"}),
    "no text": plain_choice(delta={"content": None}),
    "an unknown part": plain_choice(novelty=1),
}


@pytest.mark.parametrize("choice", MORE_THAN_TEXT.values(), ids=MORE_THAN_TEXT)
def test_more_than_text_is_passed_on_without_its_tokens_but_not_continued(choice: dict[str, Any]) -> None:
    stream = cut_after(make_request(CHAT), make_engine(), 1)
    assert stream.feed(chat_chunk(choice)) == chat_chunk(choice | {"token_ids": None})
    assert stream.resume(LIMITS) is None
    plain = engine_event(2)
    assert same_but_for_ids(stream.feed(plain)) == same_but_for_ids(plain.replace(b"[110]", b"null"))


def engine_event(number: int) -> bytes:
    return make_engine().events(ResumableStream(make_request(CHAT)).opening)[number]


def test_usage_on_every_chunk_is_passed_on_but_not_continued() -> None:
    usage = {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}
    stream = ResumableStream(make_request(CHAT))
    assert stream.feed(chat_chunk(plain_choice(), usage=usage)) == chat_chunk(
        plain_choice(token_ids=None), usage=usage
    )
    assert stream.resume(LIMITS) is None


@pytest.mark.parametrize("extra", [{}, {"usage": {"prompt_tokens": 1}}])
def test_a_chunk_that_exists_for_its_tokens_only_is_dropped(extra: dict[str, Any]) -> None:
    """A parser of the engine kept its text back: what it makes of the text is not known here."""
    stream = cut_after(make_request(CHAT), make_engine(), 1)
    assert stream.feed(chat_chunk(plain_choice(delta={}), **extra)) == b""
    assert stream.resume(LIMITS) is None


def test_text_without_its_tokens_is_not_continued() -> None:
    for ids in (None, []):
        stream = cut_after(make_request(CHAT), make_engine(), 1)
        event = chat_chunk(plain_choice(token_ids=ids))
        assert same_but_for_ids(stream.feed(event)) == same_but_for_ids(event.replace(b"[]", b"null"))
        assert stream.resume(LIMITS) is None


def test_an_engine_that_does_not_name_tokens_is_passed_on_unchanged() -> None:
    request, engine = make_request(CHAT, **USAGE), make_engine()
    stream = ResumableStream(request)
    plain = engine.events(EngineRequest(CHAT, dict(request.fields)))
    assert stream.feed(b"".join(plain[:-1])) == b"".join(plain[:-1])
    assert stream.resume(LIMITS) is None


def test_a_stream_of_another_make_is_passed_on_unchanged() -> None:
    other = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'
    stream = ResumableStream(make_request(CHAT))
    assert stream.feed(other) == other
    assert stream.done


@pytest.mark.parametrize("event", [b"data: nonsense\n\n", chat_chunk(plain_choice())])
def test_what_is_not_understood_in_a_continuation_is_a_failure(event: bytes) -> None:
    stream = cut_after(make_request(CHAT), make_engine(), 1)
    assert stream.resume(LIMITS) is not None
    assert stream.feed(event) == b""
    assert stream.failure is not None
    assert stream.resume(LIMITS) is None
