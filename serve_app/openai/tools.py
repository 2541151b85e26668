"""Whether an answer may be a tool call, and the refusal where no member reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.errors import BadRequest


def calls_tools(fields: Mapping[str, Any]) -> bool:
    """Whether the answer may be a tool call, which a member must read out of the model's text."""
    return bool(fields.get("tools")) and fields.get("tool_choice") != "none"


def refuse_tools(model: str) -> BadRequest:
    """No member of ``model`` reads tool calls."""
    return BadRequest(
        f"{model!r} is served without a parser for tool calls: its operator can name one in "
        "`models[].engine.tools` (`promptly check` says why none was chosen). Without tools, or with "
        '`tool_choice: "none"`, it answers.',
        param="tools",
        code="tools_not_supported",
    )
