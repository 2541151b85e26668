"""Anthropic's Messages API.

``request.py``: the request's fields; ``blocks.py``: their types; ``turns.py``: the conversation;
``tools.py``: tools; ``inline.py``: system messages behind the first turn; ``foreign.py``: blocks not known
here; ``answer.py``, ``stream.py``, ``calls.py``: the answer; ``errors.py``.
"""

from serve_app.dialects.anthropic.answer import TokenCount
from serve_app.dialects.anthropic.dialect import AnthropicDialect
from serve_app.dialects.anthropic.inline import InlineSystem, inline_system_of
from serve_app.dialects.anthropic.request import count_request, read_messages

__all__ = [
    "AnthropicDialect",
    "InlineSystem",
    "TokenCount",
    "count_request",
    "inline_system_of",
    "read_messages",
]
