"""Close codes of WebSockets (RFC 6455, section 7.4; IANA's registry)."""

from __future__ import annotations

import re

from serve_app.errors import OverCapacity, PromptlyError

POLICY = 1008
TOO_BIG = 1009
INTERNAL = 1011
RESTART = 1012
AGAIN_LATER = 1013

REASON = re.compile(r"[a-z0-9_]{1,64}")
"""The protocol's own bound is 123 bytes."""


def close_code(error: PromptlyError) -> int:
    """How a session ends that this error ends."""
    if error.code == "event_too_large":
        return TOO_BIG
    if error.code == "shutting_down":
        return RESTART
    if isinstance(error, OverCapacity) or error.status == 503:
        return AGAIN_LATER
    return POLICY if error.status < 500 else INTERNAL


def close_reason(error: PromptlyError) -> str:
    """The error's code as the client reads it in the event."""
    code = error.details.code or ""
    return code if REASON.fullmatch(code) else error.type
