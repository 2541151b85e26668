"""An answer survives the way to another gateway, however its bytes are cut."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.errors import BudgetSpent, EngineError, ErrorDetails, OverCapacity, PromptlyError
from serve_app.gateways.frames import BadFrame, Frames, Kind, failed, failure, frame

SENT = [(Kind.ACCEPTED, b""), (Kind.DATA, b"data: 1\n\n"), (Kind.WAITING, b""), (Kind.DATA, b"x" * 70_000)]
BYTES = b"".join(frame(kind, payload) for kind, payload in SENT)


@pytest.mark.parametrize("size", [1, 3, 64, 65_536, 1 << 20])
def test_frames_are_read_from_pieces_of_any_size(size: int) -> None:
    frames, read = Frames(), []
    step = size if size > 1 else 7
    for start in range(0, len(BYTES), step):
        read += frames.feed(BYTES[start : start + step])
    assert read == SENT


def test_every_byte_may_come_alone() -> None:
    frames, read = Frames(), []
    for byte in frame(Kind.DATA, b"hello") + frame(Kind.END):
        read += frames.feed(bytes((byte,)))
    assert read == [(Kind.DATA, b"hello"), (Kind.END, b"")]


@pytest.mark.parametrize(
    "error",
    [
        OverCapacity("busy", 7),
        BudgetSpent("This tenant: tokens_per_day is limited to 3.", 7000),
        EngineError(ErrorDetails("no such thing", "invalid_request_error", "n", "x")),
    ],
)
def test_an_error_is_told_as_to_the_owner_s_clients(error: PromptlyError) -> None:
    ((kind, payload),) = Frames().feed(failed(error))
    told = failure(payload)
    assert kind is Kind.FAILED
    assert (told.status, told.details, dict(told.headers)) == (error.status, error.details, error.headers)
    assert told.should_retry == error.should_retry


@pytest.mark.parametrize("data", [b"\x63\0\0\0\0", b"\x03\xff\xff\xff\xff"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        Frames().feed(data)


def test_a_failure_of_another_form_is_refused() -> None:
    with pytest.raises(BadFrame):
        failure(msgspec.msgpack.encode({"status": "many"}))
