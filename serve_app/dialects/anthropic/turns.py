"""A conversation as the messages of a chat.

The same turns give the same messages whatever comes after them, so that a conversation which grows keeps its
prefix in the caches of engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from serve_app.dialects.anthropic.blocks import (
    AssistantTurn,
    Document,
    DocumentContent,
    Image,
    PlainText,
    Prompt,
    ResultBlock,
    SearchResult,
    SystemTurn,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolReference,
    ToolResult,
    ToolUse,
    Turn,
    UserTurn,
)
from serve_app.dialects.anthropic.inline import InlineSystem, as_reminder
from serve_app.dialects.hidden import shown_reasoning
from serve_app.errors import BadRequest

Message = dict[str, Any]

ATTRIBUTION = "x-anthropic-billing-header"
"""Claude Code begins its system text with a line of this name, which differs in every request: it would make
every prompt begin differently. It says nothing to a model."""

UNREAD = "[A document that is no text: this server cannot read it.]"
"""What a model reads of a PDF that a tool gave, or that an earlier turn holds. A refusal there would end the
session, as each later request repeats it."""

FAILED = "The tool failed."
"""What a model reads of a failed tool, before what the tool said."""


def chat_messages(
    system: str | Sequence[Text] | None, turns: Sequence[Turn], inline: InlineSystem
) -> list[Message]:
    """Raises: BadRequest: a tool's result belongs to no call before it, or the turns say nothing at all."""
    first = _system_texts(system)
    if inline is InlineSystem.FIRST:
        for number, turn in enumerate(turns):
            if isinstance(turn, SystemTurn):
                first += _turn_texts(turn, f"messages[{number}].content")
    conversation = _Conversation(inline)
    if first:
        conversation.messages.append({"role": "system", "content": "\n".join(first)})
    for number, turn in enumerate(turns):
        conversation.add(turn, f"messages[{number}].content", is_last=number == len(turns) - 1)
    if not conversation.messages:
        raise BadRequest("`messages` say nothing: all are empty.", param="messages", code="invalid_value")
    return conversation.messages


class _Conversation:
    """The messages so far, and the calls of tools that results may answer."""

    def __init__(self, inline: InlineSystem) -> None:
        self.messages: list[Message] = []
        self._inline = inline
        self._calls: set[str] = set()
        self._reminded = False

    def add(self, turn: Turn, where: str, *, is_last: bool) -> None:
        if isinstance(turn, SystemTurn):
            self._add_system(turn, where)
        elif isinstance(turn, UserTurn):
            self._add_user(turn, where, is_last=is_last)
        else:
            self.messages.append(self._assistant(turn))
            self._reminded = False

    def _add_system(self, turn: SystemTurn, where: str) -> None:
        text = "\n".join(_turn_texts(turn, where))
        if not text or self._inline is InlineSystem.FIRST:
            return
        if self._inline is InlineSystem.SYSTEM:
            self.messages.append({"role": "system", "content": text})
        else:
            self._say([_text(as_reminder(text))], joins=True)
            self._reminded = True

    def _add_user(self, turn: UserTurn, where: str, *, is_last: bool) -> None:
        if isinstance(turn.content, str):
            self._say([_text(turn.content)])
            return
        parts: list[Message] = []
        is_new = is_last and not any(isinstance(block, ToolResult) for block in turn.content)
        for number, block in enumerate(turn.content):
            if is_new and isinstance(block, Document) and block.unread is not None:
                raise _unread(block.unread, f"{where}[{number}].source.type")
            if isinstance(block, ToolResult):
                parts += self._add_result(block, f"{where}[{number}]")
            else:
                parts += _parts(block)
        if parts:
            self._say(parts)

    def _say(self, parts: list[Message], *, joins: bool = False) -> None:
        """A message of the user. Next to a reminder it is one with it: some templates want turns to
        alternate."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last["role"] == "user" and (joins or self._reminded):
            before = last["content"]
            last["content"] = [*([_text(before)] if isinstance(before, str) else before), *parts]
        else:
            self.messages.append({"role": "user", "content": _plain(parts)})
        self._reminded = False

    def _add_result(self, result: ToolResult, where: str) -> list[Message]:
        """Returns the images, which only a message of the user may hold."""
        if result.tool_use_id not in self._calls:
            raise BadRequest(
                f"`{where}.tool_use_id` is {result.tool_use_id[:100]!r}: no `tool_use` before has this id.",
                param=f"{where}.tool_use_id",
                code="invalid_value",
            )
        content = [Text(result.content)] if isinstance(result.content, str) else result.content or []
        parts = [part for block in content for part in _parts(block)]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        answer = "\n".join(filter(None, (FAILED if result.is_error else "", text)))
        self.messages.append({"role": "tool", "tool_call_id": result.tool_use_id, "content": answer})
        return [part for part in parts if part["type"] != "text"]

    def _assistant(self, turn: AssistantTurn) -> Message:
        if isinstance(turn.content, str):
            return {"role": "assistant", "content": turn.content}
        texts = [_text(block.text) for block in turn.content if isinstance(block, Text)]
        thoughts = [
            block.thinking or shown_reasoning(block.signature) or ""
            for block in turn.content
            if isinstance(block, Thinking)
        ]
        calls = [_call(block) for block in turn.content if isinstance(block, ToolUse)]
        self._calls.update(call["id"] for call in calls)
        message: Message = {"role": "assistant", "content": _plain(texts) if texts else None}
        if any(thoughts):
            message["reasoning"] = "".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        elif message["content"] is None:
            message["content"] = ""
        return message


def tools_of(request: Prompt) -> list[Tool]:
    """The tools that the model is shown: one that its client loads later (``defer_loading``) only once it is
    loaded, called or asked for."""
    tools = request.tools or []
    if not any(tool.defer_loading for tool in tools):
        return tools
    shown = {request.tool_choice.name} if isinstance(request.tool_choice, ToolChoice) else set()
    for turn in request.messages:
        blocks = turn.content if isinstance(turn.content, list) else []
        for block in blocks:
            if isinstance(block, ToolUse):
                shown.add(block.name)
            elif isinstance(block, ToolResult) and isinstance(block.content, list):
                shown |= {each.tool_name for each in block.content if isinstance(each, ToolReference)}
            elif isinstance(block, dict):
                shown |= _added(block)
    return [tool for tool in tools if not tool.defer_loading or tool.name in shown]


def _added(block: dict[str, Any]) -> set[str]:
    """The tool that a block of a system turn makes available."""
    tool = block.get("tool") if block.get("type") == "tool_addition" else None
    given = tool if isinstance(tool, dict) else {}
    return {name for name in (given.get("name"), given.get("tool_name")) if isinstance(name, str)}


def _turn_texts(turn: SystemTurn, where: str) -> list[str]:
    """Raises: BadRequest: a block's text is none."""
    if turn.content is None or isinstance(turn.content, str):
        return _system_texts(turn.content)
    texts = [(number, block.get("text")) for number, block in enumerate(turn.content) if _is_text(block)]
    for number, text in texts:
        if not isinstance(text, str):
            param = f"{where}[{number}].text"
            raise BadRequest(f"`{param}` must be a string.", param=param, code="invalid_value")
    return _system_texts([Text(text) for _, text in texts if isinstance(text, str)])


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text"


def _system_texts(content: str | Sequence[Text] | None) -> list[str]:
    texts = [content] if isinstance(content, str) else [block.text for block in content or ()]
    return [text for text in texts if text and not text.startswith(ATTRIBUTION)]


def _parts(block: ResultBlock) -> list[Message]:
    if isinstance(block, Text):
        return [_text(block.text)]
    if isinstance(block, ToolReference):
        return [_text(f"Loaded tool: {block.tool_name}")]
    if isinstance(block, SearchResult):
        texts = (block.title, block.source, *(inner.text for inner in block.content))
        return [_text("\n".join(text for text in texts if text))]
    if isinstance(block, Image):
        return [{"type": "image_url", "image_url": {"url": block.source.address}}]
    return _document_parts(block)


def _document_parts(document: Document) -> list[Message]:
    source = document.source
    if isinstance(source, PlainText):
        return [_text(source.data)]
    if not isinstance(source, DocumentContent):
        return [_text(UNREAD)]
    if isinstance(source.content, str):
        return [_text(source.content)]
    return [part for inner in source.content for part in _parts(inner)]


def _unread(kind: str, where: str) -> BadRequest:
    return BadRequest(
        f"`{where}` is {kind!r}: PDFs are not supported; expected the document's text, with the type 'text'.",
        param=where,
        code="unsupported_value",
    )


def _call(block: ToolUse) -> Message:
    arguments = msgspec.json.encode(block.input).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _plain(parts: list[Message]) -> str | list[Message]:
    """One text is sent as chat clients send it."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts
