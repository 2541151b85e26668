"""Calls from a gateway to the owner of the feedback."""

from __future__ import annotations

from serve_app.feedback.captured import Capture, CapturePage, CaptureQuery, CaptureReply
from serve_app.feedback.values import FeedbackPage, FeedbackQuery, Judged, Kept, Said
from serve_app.wire.calls import Interface, Method

FEEDBACK: Interface = {
    "report": Method(tuple[list[Judged]], None),
    "say": Method(tuple[str, str, str, Said], Kept),
    "page": Method(tuple[FeedbackQuery], FeedbackPage),
    "erase": Method(tuple[str, bool], int),
    "capture": Method(tuple[list[Capture]], CaptureReply),
    "captures": Method(tuple[CaptureQuery], CapturePage),
}
"""All may be repeated: a request and what one author says of it are written over the same row."""
