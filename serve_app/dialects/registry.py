"""The dialect of each path."""

from __future__ import annotations

from serve_app.dialects.anthropic import AnthropicDialect
from serve_app.dialects.base import Dialect
from serve_app.dialects.openai import OpenAIDialect
from serve_app.dialects.responses.dialect import ResponsesDialect

DEFAULT: Dialect = OpenAIDialect()

DIALECTS: dict[str, Dialect] = {"/v1/messages": AnthropicDialect(), "/v1/responses": ResponsesDialect()}
"""Dialects by path; each also holds for the paths below."""


def dialect_of(path: str) -> Dialect:
    """The dialect of a path below the route prefix; OpenAI's for an unknown path."""
    first_two = "/".join(path.split("/", 3)[:3])
    return DIALECTS.get(first_two, DEFAULT)
