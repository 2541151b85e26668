"""OpenAI's transcription session and vLLM's own, event by event, without a socket."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest

from serve_app.errors import BadRequest, EngineError, NoReplica, OverCapacity, PromptlyError, UpstreamFailed
from serve_app.realtime.base import Mark, Step
from serve_app.realtime.closing import close_code
from serve_app.realtime.events import error_event, read_engine_event, read_event
from serve_app.realtime.native import NativeSession
from serve_app.realtime.transcription import TranscriptionSession

SECOND = base64.b64encode(bytes(48_000)).decode()
APPEND = {"type": "input_audio_buffer.append", "audio": SECOND}
COMMIT = {"type": "input_audio_buffer.commit"}
DONE = {
    "type": "transcription.done",
    "text": "hello",
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}


def session(model: str | None = "m") -> TranscriptionSession:
    numbers = itertools.count()
    return TranscriptionSession(model, lambda kind: f"{kind}_{next(numbers)}")


def said(to: Any, **event: Any) -> Step:
    step: Step = to.client(read_event(json.dumps(event)))
    return step


def heard(to: Any, **event: Any) -> Step:
    message = json.dumps(event)
    step: Step = to.engine(read_engine_event(message), message)
    return step


def types(messages: tuple[str, ...]) -> list[str]:
    return [json.loads(message)["type"] for message in messages]


def configured(**given: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": given}}}


def test_an_utterance_begins_at_the_engine_with_its_first_audio_and_ends_with_the_commit() -> None:
    s = session()
    first = said(s, **APPEND)
    assert types(first.to_engine) == ["input_audio_buffer.commit", "input_audio_buffer.append"]
    assert "final" not in json.loads(first.to_engine[0])
    assert first.mark is Mark.BEGAN
    sent = len(base64.b64decode(json.loads(first.to_engine[1])["audio"]))
    assert sent == pytest.approx(32_000, abs=200)
    delta = json.loads(heard(s, type="transcription.delta", delta="hel").to_client[0])
    last = said(s, **COMMIT)
    assert types(last.to_engine) == ["input_audio_buffer.append", "input_audio_buffer.commit"]
    assert json.loads(last.to_engine[-1])["final"] is True
    assert s.must_wait
    committed = json.loads(last.to_client[0])
    done = json.loads(heard(s, **DONE).to_client[0])
    assert not s.must_wait
    assert delta["item_id"] == committed["item_id"] == done["item_id"]
    assert (done["transcript"], done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (
        "hello",
        5,
        2,
    )


def test_the_next_utterance_names_the_one_before() -> None:
    s = session()
    items = []
    for _ in range(2):
        said(s, **APPEND)
        items.append(json.loads(said(s, **COMMIT).to_client[0]))
        heard(s, **DONE)
    assert items[1]["previous_item_id"] == items[0]["item_id"]
    assert items[0]["previous_item_id"] is None


def test_16_khz_passes_unchanged() -> None:
    s = session()
    said(s, **configured(format={"type": "audio/pcm", "rate": 16_000}))
    assert json.loads(said(s, **APPEND).to_engine[1])["audio"] == SECOND
    assert s.audio_s == 1.5


def test_a_sample_may_be_cut_between_events() -> None:
    s = session()
    said(s, **configured(format={"type": "audio/pcm", "rate": 16_000}))
    parts = [b"\x01\x02\x03", b"\x04", b"\x05\x06"]
    steps = [said(s, type=APPEND["type"], audio=base64.b64encode(part).decode()) for part in parts]
    sent = [json.loads(each) for step in steps for each in step.to_engine]
    assert b"".join(base64.b64decode(each["audio"]) for each in sent if "audio" in each) == bytes(range(1, 7))


def test_the_first_update_may_name_the_model() -> None:
    s = session(None)
    with pytest.raises(BadRequest, match="Name the model first"):
        said(s, **APPEND)
    updated = json.loads(said(s, **configured(transcription={"model": "m"})).to_client[0])
    assert updated["session"]["audio"]["input"]["transcription"] == {"model": "m"}
    assert s.model == "m"


def test_an_update_shows_what_has_an_effect() -> None:
    s = session()
    update = configured(
        transcription={"model": "m", "language": "de", "prompt": "words"},
        noise_reduction={"type": "near_field"},
    )
    effective = json.loads(said(s, **update).to_client[0])["session"]["audio"]["input"]
    assert effective["transcription"] == {"model": "m"}
    assert effective["noise_reduction"] is None


def test_a_cleared_utterance_says_nothing_any_more() -> None:
    s = session()
    assert types(said(s, type="input_audio_buffer.clear").to_client) == ["input_audio_buffer.cleared"]
    said(s, **APPEND)
    cleared = said(s, type="input_audio_buffer.clear")
    assert types(cleared.to_client) == ["input_audio_buffer.cleared"]
    assert json.loads(cleared.to_engine[-1])["final"] is True
    assert s.must_wait
    assert heard(s, type="transcription.delta", delta="x") == heard(s, **DONE) == Step()
    assert not s.must_wait


def test_an_engine_that_ends_by_itself_commits_what_it_heard() -> None:
    s = session()
    said(s, **APPEND)
    assert types(heard(s, **DONE).to_client) == [
        "input_audio_buffer.committed",
        "conversation.item.input_audio_transcription.completed",
    ]
    with pytest.raises(BadRequest, match="no audio"):
        said(s, **COMMIT)


@pytest.mark.parametrize(
    ("event", "param"),
    [
        ({"type": "response.create"}, "type"),
        ({"type": "session.update"}, "session"),
        ({"type": "session.update", "session": {"type": "realtime"}}, "session.type"),
        ({"type": "session.update", "session": {"include": ["x"]}}, "session.include"),
        (configured(turn_detection={"type": "server_vad"}), "session.audio.input.turn_detection"),
        (configured(format={"type": "audio/pcmu"}), "session.audio.input.format"),
        (configured(format={"type": "audio/pcm", "rate": 8000}), "session.audio.input.format"),
        (configured(transcription={"model": "other"}), "session.audio.input.transcription.model"),
        ({"type": "input_audio_buffer.append"}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": "not base64!"}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": "ü"}, "audio"),
        ({"type": "input_audio_buffer.commit"}, "type"),
    ],
)
def test_a_wrong_event_is_refused_by_its_field_and_changes_nothing(event: dict[str, Any], param: str) -> None:
    s = session()
    with pytest.raises(BadRequest) as refused:
        said(s, **event)
    assert refused.value.param == param
    assert types(said(s, **APPEND).to_engine)[0] == "input_audio_buffer.commit"


@pytest.mark.parametrize("message", [b"\x00", "", "{", "[]", "3", '{"type": 3}', "[" * 100_000])
def test_what_is_no_event_is_refused(message: str | bytes) -> None:
    with pytest.raises(BadRequest):
        read_event(message)


def test_an_engines_error_and_what_is_no_event_of_it_end_the_session() -> None:
    with pytest.raises(EngineError) as failed:
        read_engine_event('{"type": "error", "error": "out of memory", "code": "processing_error"}')
    assert (failed.value.details.message, failed.value.details.code) == ("out of memory", "processing_error")
    with pytest.raises(UpstreamFailed):
        read_engine_event("<html>")


def test_an_error_event_has_openais_shape() -> None:
    event = json.loads(error_event(BadRequest("wrong", param="audio", code="invalid_audio"), str.upper, "e1"))
    assert event == {
        "type": "error",
        "event_id": "EVENT",
        "error": {
            "type": "invalid_request_error",
            "code": "invalid_audio",
            "message": "wrong",
            "param": "audio",
            "event_id": "e1",
        },
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadRequest("large", code="event_too_large"), 1009),
        (BadRequest("wrong"), 1008),
        (UpstreamFailed("broke"), 1011),
        (OverCapacity("full", 1), 1013),
        (NoReplica("none"), 1013),
        (NoReplica("bye", code="shutting_down"), 1012),
        (PromptlyError("bug"), 1011),
    ],
)
def test_the_close_code_says_what_the_client_may_do(error: PromptlyError, code: int) -> None:
    assert close_code(error) == code


def test_vllms_own_client_waits_from_its_last_commit_to_the_text() -> None:
    s = NativeSession("m")
    said(s, **COMMIT, final=True)
    assert not s.is_finishing  # nothing was begun: vLLM says nothing
    said(s, **COMMIT)
    said(s, **APPEND)
    assert not s.is_finishing
    said(s, **COMMIT, final=True)
    assert s.is_finishing
    assert not s.must_wait
    heard(s, type="transcription.delta", delta="x")
    assert s.is_finishing
    heard(s, **DONE)
    assert not s.is_finishing


def test_vllms_own_client_keeps_its_events() -> None:
    s = NativeSession(None)
    assert said(s, type="session.update", model="m") == Step()
    assert s.model == "m"
    with pytest.raises(BadRequest, match="cannot change"):
        said(s, type="session.update", model="other")
    assert types(said(s, **COMMIT).to_engine) == ["input_audio_buffer.commit"]
    assert json.loads(said(s, **APPEND).to_engine[0])["audio"] == SECOND
    assert s.audio_s == 1.5
    with pytest.raises(BadRequest, match="within a sample"):
        said(s, type=APPEND["type"], audio="AAAA")
    assert types(heard(s, type="transcription.delta", delta="x").to_client) == ["transcription.delta"]
    assert json.loads(said(s, **COMMIT, final=True).to_engine[0])["final"] is True
    assert json.loads(heard(s, **DONE).to_client[0]) == DONE
