"""Writes the answer to a chat as a response: whole, or as the typed events of a stream.

The last event has the whole response and is the only one of ``rest``: the response is stored
between the last token and that event, which delays nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serve_app.dialects.responses.chat import Choice, Completion, Function, Said, ToolCall, Usage, completion
from serve_app.dialects.responses.ids import ItemIds
from serve_app.dialects.responses.output import Call, Events, Item, Message, Reasoning
from serve_app.dialects.responses.tools import Tools
from serve_app.errors import UpstreamFailed
from serve_app.openai.sse import DONE, END, EVENT_END

DATA = b"data:"

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer that is not complete ended, by the reason of the chat completion."""


class Output:
    """The items of one response, in the order in which the model makes them."""

    def __init__(self, ids: ItemIds, tools: Tools, *, hides_reasoning: bool) -> None:
        self.events = Events()
        self.items: list[Item] = []
        self._ids = ids
        self._tools = tools
        self._hides = hides_reasoning
        self._speaking: Message | Reasoning | None = None
        self._calls: dict[int, Call] = {}

    def thought(self, text: str) -> bytes:
        opened = b""
        speaking = self._speaking
        if not isinstance(speaking, Reasoning):
            opened = self.close_speech("completed")
            item_id = self._ids.of_output("reasoning", len(self.items))
            speaking = Reasoning(item_id, len(self.items), hides=self._hides)
            opened += self._open(speaking)
            self._speaking = speaking
        return opened + speaking.delta(self.events, text)

    def said(self, text: str, choice: Choice) -> bytes:
        opened = b""
        speaking = self._speaking
        if not isinstance(speaking, Message):
            opened = self.close_speech("completed")
            speaking = Message(self._ids.of_output("message", len(self.items)), len(self.items))
            opened += self._open(speaking)
            self._speaking = speaking
        if choice.logprobs is None or not choice.logprobs.content:
            return opened + speaking.delta(self.events, text)
        return opened + speaking.delta(self.events, text, choice.logprobs.content)

    def called(self, piece: ToolCall, index: int | None) -> bytes:
        """Calls stay open to the end: pieces of parallel calls may alternate."""
        opened = b""
        index = self._index_of(piece) if index is None else index
        function = piece.function or NO_FUNCTION
        call = self._calls.get(index)
        if call is None:
            opened = self.close_speech("completed")
            call = self._new_call(piece, function)
            self._calls[index] = call
            opened += self._open(call)
        return opened + (call.delta(self.events, function.arguments) if function.arguments else b"")

    def _index_of(self, piece: ToolCall) -> int:
        """The index of a call from a server that does not number its calls: another id begins another
        call."""
        last = max(self._calls, default=-1)
        if last >= 0 and piece.id in (None, self._calls[last].call_id):
            return last
        return last + 1

    def _new_call(self, piece: ToolCall, function: Function) -> Call:
        place = len(self.items)
        tool = self._tools.behind(function.name or "")
        kind = "function_call" if tool.kind == "function" else KINDS[tool.kind]
        return Call(
            self._ids.of_output(kind, place), place, tool, piece.id or f"call_{self._ids.unique}{place:x}"
        )

    def _open(self, item: Item) -> bytes:
        self.items.append(item)
        return item.opened(self.events)

    def close_speech(self, status: str) -> bytes:
        speaking, self._speaking = self._speaking, None
        return b"" if speaking is None else speaking.closed(self.events, status)

    def close(self, status: str) -> bytes:
        """End all items. An answer without any is an empty text."""
        opened = b""
        if not self.items:
            self._speaking = Message(self._ids.of_output("message", 0), 0)
            opened = self._open(self._speaking)
        ended = self.close_speech(status)
        calls, self._calls = self._calls, {}
        return opened + ended + b"".join(call.closed(self.events, status) for call in calls.values())


NO_FUNCTION = Function()

KINDS = {
    "custom": "custom_tool_call",
    "local_shell": "local_shell_call",
    "shell": "shell_call",
    "apply_patch": "apply_patch_call",
}


class ResponsesWriter:
    """One answer. ``echo`` is what the response says of its request; ``created``: Unix seconds. It is one
    class because every event of the stream changes the same response."""

    def __init__(
        self,
        ids: ItemIds,
        tools: Tools,
        echo: Mapping[str, Any],
        created: int,
        *,
        model: str,
        hides_reasoning: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """``clock`` tells when it was complete, in Unix seconds."""
        self.ids = ids
        self._output = Output(ids, tools, hides_reasoning=hides_reasoning)
        self._echo = echo
        self._created = created
        self._clock = clock
        self._model = model
        self._partial = b""
        self._begun = False
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._ended = False
        self.response = b""
        """The whole response, JSON; empty until the answer is complete."""
        self.output = b"[]"
        """Its output items, a JSON list."""

    def feed(self, chunk: bytes) -> bytes:
        if self._partial and b"\n" not in chunk:  # do not search a long event again for every piece
            self._partial += chunk
            return b""
        data = self._partial + chunk
        if b"\r" in data:
            data = EVENT_END.sub(END, data)
        *events, self._partial = data.split(END)
        return b"".join([self._event(event) for event in events])

    def rest(self) -> bytes:
        if not self._ended:
            raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
        self.response = self._complete()
        kind = "response.incomplete" if self.status == "incomplete" else "response.completed"
        return self._output.events.event(kind, {"response": msgspec.Raw(self.response)})

    def whole(self, body: bytes) -> bytes:
        answer = completion(body)
        if not answer.choices or answer.choices[0].message is None:
            raise UpstreamFailed("The engine's answer holds no message.", code="upstream_failed")
        choice = answer.choices[0]
        self._model = answer.model or self._model
        self._usage = answer.usage
        self._reason = choice.finish_reason
        assert choice.message is not None
        self._take(choice.message, choice)
        self._output.close(self.status)
        self.response = self._complete()
        return self.response

    def _event(self, event: bytes) -> bytes:
        """One event of the chat, which may be a comment."""
        at = 0 if event.startswith(DATA) else event.find(b"\n" + DATA) + 1
        if not event.startswith(DATA, at):
            return b""
        data = event[at + len(DATA) :].strip()
        if data == DONE:
            self._ended = True
            return self._finish() if self._begun and self._reason is None else b""
        return self._chunk(completion(data))

    def _chunk(self, chunk: Completion) -> bytes:
        written = b"" if self._begun else self._begin(chunk)
        if chunk.usage is not None:
            self._usage = chunk.usage
        if not chunk.choices:
            return written
        choice = chunk.choices[0]
        if choice.delta is not None:
            written += self._take(choice.delta, choice)
        if choice.finish_reason is not None and self._reason is None:
            self._reason = choice.finish_reason
            written += self._finish()
        return written

    def _begin(self, chunk: Completion) -> bytes:
        self._begun = True
        self._model = chunk.model or self._model
        response = msgspec.Raw(self._encoded("in_progress", b"[]", None))
        event = self._output.events.event
        return event("response.created", {"response": response}) + event(
            "response.in_progress", {"response": response}
        )

    def _take(self, said: Said, choice: Choice) -> bytes:
        written = b""
        if said.thought:
            written += self._output.thought(said.thought)
        if said.text:
            written += self._output.said(said.text, choice)
        for position, call in enumerate(said.tool_calls or ()):
            written += self._output.called(call, position if choice.message is not None else call.index)
        return written

    def _finish(self) -> bytes:
        return self._output.close(self.status)

    @property
    def status(self) -> str:
        """The response's status, once it is complete."""
        return "incomplete" if self._reason in INCOMPLETE else "completed"

    @property
    def tokens(self) -> int:
        """Tokens of input and output, as the engine counted them."""
        return 0 if self._usage is None else self._usage.total_tokens

    def _complete(self) -> bytes:
        self.output = msgspec.json.encode([item.result for item in self._output.items])
        return self._encoded(self.status, self.output, self._usage)

    def _encoded(self, status: str, output: bytes, usage: Usage | None) -> bytes:
        reason = INCOMPLETE.get(self._reason or "")
        return msgspec.json.encode(
            {
                **self._echo,
                "created_at": self._created,
                "completed_at": None if self._clock is None or status != "completed" else int(self._clock()),
                "status": status,
                "model": self._model,
                "output": msgspec.Raw(output),
                "usage": None if usage is None else usage.in_responses(),
                "error": None,
                "incomplete_details": None if reason is None else {"reason": reason},
            }
        )
