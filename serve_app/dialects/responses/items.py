"""The items of a conversation in the Responses API as messages of a chat, and in the form in which they are
stored and listed.

An assistant's turn is several items (reasoning, text, calls); a chat completion wants one message of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.dialects.hidden import shown_reasoning
from serve_app.dialects.responses.ids import ItemIds, response_of
from serve_app.dialects.responses.tools import NO_TOOL, called
from serve_app.errors import BadRequest, NotFound

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"})
RESULTS = frozenset(f"{call}_output" for call in CALLS)
SYSTEM_ROLES = frozenset({"system", "developer"})
ROLES = SYSTEM_ROLES | {"user", "assistant"}
REFERENCE = "item_reference"


def listed(given: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A request's ``input`` as items with a type. Raises: BadRequest."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [_typed(item, f"input[{index}]") for index, item in enumerate(given)]


def _typed(item: Mapping[str, Any], param: str) -> Mapping[str, Any]:
    """A message needs no type, and neither does a reference."""
    kind = item.get("type")
    if isinstance(kind, str):
        return item
    if kind is not None:
        raise BadRequest(f"`{param}.type` must be a text.", param=f"{param}.type", code="invalid_value")
    if "role" in item:
        return {"type": "message", **item}
    if "id" in item and len(item.keys() - {"type"}) == 1:
        return {"type": REFERENCE, "id": item["id"]}
    raise BadRequest(f"Missing required field `{param}.type`.", param=f"{param}.type", code="missing_field")


def references(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the items that a request only names."""
    return [str(item.get("id")) for item in items if item["type"] == REFERENCE]


def with_references(
    items: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The items with each reference replaced by what it names.

    Raises:
        NotFound: there is no such item.
    """
    found = []
    for index, item in enumerate(items):
        if item["type"] != REFERENCE:
            found.append(item)
            continue
        named = known.get(str(item.get("id")))
        if named is None:
            raise NotFound(
                f"Item with id {item.get('id')!r} not found: only items of stored responses can be named; "
                "send the item itself.",
                param=f"input[{index}].id",
                code="item_not_found",
            )
        found.append(named)
    return found


def messages_of(
    history: Sequence[Mapping[str, Any]],
    new: Sequence[Mapping[str, Any]],
    instructions: str | None,
    *,
    alone: bool = True,
) -> list[dict[str, Any]]:
    """The messages of a chat. ``history`` was checked when it was stored; ``instructions`` hold for this
    request alone. ``alone``: no messages of a stored prompt will stand before them.

    Raises:
        BadRequest: an item is not known or not whole, or a result has no call; ``param`` says which.
    """
    chat = _Chat()
    if instructions:
        chat.system(instructions)
    for item in history:
        chat.add(item, "previous_response_id")
    for index, item in enumerate(new):
        chat.add(item, f"input[{index}]")
    if not chat.messages and alone:
        raise BadRequest("`input` holds nothing to answer.", param="input", code="missing_field")
    return chat.messages


def check(items: Sequence[Mapping[str, Any]]) -> None:
    """Checks items that are stored before they are used: a call may come with another request.

    Raises:
        BadRequest: an item is not known, or not whole.
    """
    chat = _Chat(any_call=True)
    for index, item in enumerate(items):
        chat.add(item, f"items[{index}]")


class _Chat:
    """Messages so far, and the calls whose results may follow."""

    def __init__(self, *, any_call: bool = False) -> None:
        """``any_call``: a result need not follow its call."""
        self.messages: list[dict[str, Any]] = []
        self._called: set[str] = set()
        self._any_call = any_call

    def add(self, item: Mapping[str, Any], param: str) -> None:
        kind = item["type"]
        if kind == "message":
            self._message(item, param)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in CALLS:
            self._call(item, param)
        elif kind in RESULTS:
            self._result(item, param)
        elif kind not in NO_TOOL:
            raise BadRequest(
                f"`{param}.type` is {kind!r}: this kind of item is not known here.",
                param=f"{param}.type",
                code="unsupported_value",
            )

    def system(self, content: Any) -> None:
        """Many templates take one system message, the first: those at the beginning are joined."""
        last = self.messages[-1] if self.messages else None
        joins = last is not None and last["role"] == "system" and len(self.messages) == 1
        if joins and last is not None and isinstance(content, str) and isinstance(last["content"], str):
            last["content"] += f"\n\n{content}"
        else:
            self.messages.append({"role": "system", "content": content})

    def _message(self, item: Mapping[str, Any], param: str) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise BadRequest(
                f"`{param}.role` is {role!r}: expected `user`, `assistant`, `system` or `developer`.",
                param=f"{param}.role",
                code="invalid_value",
            )
        if role == "assistant":
            self._assistant()["content"] = _said(item.get("content"), f"{param}.content")
            return
        content = _content(item.get("content"), f"{param}.content")
        if role in SYSTEM_ROLES:
            self.system(_text_only(content))
        else:
            self.messages.append({"role": role, "content": content})

    def _assistant(self, *, for_call: bool = False) -> dict[str, Any]:
        """The assistant's message that the next item belongs to: the last one, as long as it says nothing
        yet, or a new one."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last["role"] == "assistant" and (for_call or last["content"] is None):
            return last
        self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def _reasoning(self, item: Mapping[str, Any]) -> None:
        text = reasoning_text(item)
        if text:
            last = self.messages[-1] if self.messages else None
            if last is None or last["role"] != "assistant" or len(last) > 2 or last["content"] is not None:
                self.messages.append(last := {"role": "assistant", "content": None})
            last["reasoning"] = text

    def _call(self, item: Mapping[str, Any], param: str) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or not call_id:
            raise BadRequest(
                f"Missing required field `{param}.call_id`.", param=f"{param}.call_id", code="missing_field"
            )
        self._called.add(call_id)
        name, arguments = called(item)
        if not name:
            raise BadRequest(
                f"Missing required field `{param}.name`.", param=f"{param}.name", code="missing_field"
            )
        calls = self._assistant(for_call=True).setdefault("tool_calls", [])
        function = {"name": name, "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})

    def _result(self, item: Mapping[str, Any], param: str) -> None:
        """A local shell's result may name its call by ``id``."""
        call_id = item.get("call_id") or item.get("id")
        if not isinstance(call_id, str) or not (self._any_call or call_id in self._called):
            raise BadRequest(
                f"No tool call found for the output with call_id {call_id!r}.",
                param=f"{param}.call_id",
                code="invalid_value",
            )
        content = _output(item, f"{param}.output")
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})


def reasoning_text(item: Mapping[str, Any]) -> str:
    """What the model thought; empty where only another server could read it."""
    hidden = shown_reasoning(item.get("encrypted_content"))
    if hidden is not None:
        return hidden
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = (
            [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        )
        if texts:
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def _said(content: Any, param: str) -> str:
    """An assistant's own text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    if content == []:  # it said nothing, and called a tool
        return ""
    for index, part in enumerate(_parts(content, param)):
        kind = part.get("type")
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind not in ("output_text", "input_text", "text", "refusal") or not isinstance(text, str):
            raise _wrong_part(kind, f"{param}[{index}]")
        texts.append(text)
    return "".join(texts)


def _content(content: Any, param: str) -> str | list[dict[str, Any]]:
    """A message's content: a text if it is one text, so that it equals the same chat's."""
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{param}[{index}]") for index, part in enumerate(_parts(content, param))]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def _text_only(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return "\n\n".join(part["text"] for part in content)
    return content


def _parts(content: Any, param: str) -> list[Mapping[str, Any]]:
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        return content
    raise BadRequest(f"`{param}` must be a text or a list of parts.", param=param, code="invalid_value")


def _part(part: Mapping[str, Any], param: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if part.get("detail") not in (None, "auto"):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    if kind in ("input_image", "input_file") and part.get("file_id") is not None:
        raise BadRequest(
            f"`{param}.file_id`: no files are stored here; send the content itself.",
            param=f"{param}.file_id",
            code="unsupported_value",
        )
    raise _wrong_part(kind, param)


def _wrong_part(kind: Any, param: str) -> BadRequest:
    return BadRequest(
        f"`{param}` is no part that can be read: its type is {kind!r}.",
        param=f"{param}.type",
        code="unsupported_value",
    )


def _output(item: Mapping[str, Any], param: str) -> str | list[dict[str, Any]]:
    """What a tool returned."""
    output = item.get("output")
    if item["type"] == "shell_call_output":
        return _shell_output(output)
    if output is None and item["type"] == "apply_patch_call_output":
        return str(item.get("status") or "")
    if isinstance(output, list) and not output:
        return ""
    return _content(output, param)


def _shell_output(output: Any) -> str:
    results = [each for each in output if isinstance(each, dict)] if isinstance(output, list) else []
    return "\n".join(_one_shell_output(each) for each in results)


def _one_shell_output(result: Mapping[str, Any]) -> str:
    outcome = result.get("outcome")
    outcome = outcome if isinstance(outcome, dict) else {}
    ended = "timed out" if outcome.get("type") == "timeout" else f"exit code {outcome.get('exit_code')}"
    return f"{result.get('stdout') or ''}{result.get('stderr') or ''}\n({ended})"


# ---- as stored and listed ----


def stored(items: Sequence[Mapping[str, Any]], ids: ItemIds) -> list[dict[str, Any]]:
    """New items as ``input_items`` lists them: each with an id of its own, a message's content as parts."""
    found: list[dict[str, Any]] = []
    used: set[str] = set()
    for index, item in enumerate(items):
        given = item.get("id")
        is_own = isinstance(given, str) and given != "" and given not in used
        item_id = str(given) if is_own else ids.of_input(item["type"], index)
        used.add(item_id)
        found.append(_stored(item, item_id))
    return found


def spare_id(item: Mapping[str, Any], ids: ItemIds, index: int) -> str:
    """Another id for an item whose own may be that of another item: a client's, which is not made here."""
    return "" if response_of(item["id"]) else ids.of_input(item["type"], index)


def _stored(item: Mapping[str, Any], item_id: str) -> dict[str, Any]:
    head = {"id": item_id, "type": item["type"]}
    if item["type"] != "message":
        return {**item, **head}
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        extra: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
        content = [{"type": kind, "text": content, **extra}]
    return {**item, **head, "content": content, "status": item.get("status") or "completed"}
