"""What gateways and the owner of the feedback tell each other arrives as it was."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.feedback.calls import FEEDBACK
from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import (
    Feedback,
    FeedbackPage,
    FeedbackQuery,
    Judged,
    Kept,
    Outcome,
    Said,
)
from serve_app.wire.calls import Wire

REQUEST = Judged(tenant="acme", request_id="r", at=1.5, endpoint="chat", model="m", ttft_ms=2.0)
SAID = Said(score=0.0, correction="Paris", messages=[{"role": "user", "content": [{"type": "text"}]}])
FOUND = Feedback(
    tenant="acme", request_id="r", author="user:ann", at=2.0, said=SAID, request=REQUEST, number=3
)
CAPTURED = Capture(
    tenant="acme", request_id="r", at=1.5, endpoint="/v1/x", model="m", content=b"\x00\xff", request=REQUEST
)

CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("report", ([REQUEST],), None),
    ("say", ("acme", "r", "user:ann", SAID), Kept(Outcome.REPLACED, REQUEST, was_negative=True)),
    ("page", (FeedbackQuery(negative=True, after=7),), FeedbackPage((FOUND,), has_more=True)),
    ("erase", ("acme", True), 12),
    ("capture", ([CAPTURED],), CaptureReply(full=True)),
    ("captures", (CaptureQuery(newest=True),), CapturePage((CAPTURED,), following=9)),
]


def test_every_call_is_tried() -> None:
    assert {name for name, _, _ in CALLS} == FEEDBACK.keys()


@pytest.mark.parametrize(("name", "arguments", "result"), CALLS)
def test_a_call_arrives_as_it_was(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    wire = Wire(FEEDBACK)
    assert wire.decode_arguments(name, wire.encode_arguments(name, arguments)) == arguments
    assert wire.decode_result(name, wire.encode_result(name, result)) == result
