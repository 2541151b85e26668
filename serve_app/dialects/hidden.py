"""Reasoning in the field that clients send back unread: for those that asked not to be shown it, or that
store nothing here. It is the model's answer to this client, so nothing is kept from it."""

from __future__ import annotations

import base64
import binascii

MARK = "promptly1."
"""Begins the reasoning's text in base64."""


def hidden_reasoning(text: str) -> str:
    return MARK + base64.b64encode(text.encode()).decode()


def shown_reasoning(hidden: object) -> str | None:
    """``None``: it was not hidden here. Empty if it is damaged."""
    if not isinstance(hidden, str) or not hidden.startswith(MARK):
        return None
    try:
        return base64.b64decode(hidden.removeprefix(MARK), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
