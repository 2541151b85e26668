"""A scripted turn as tokens and as vLLM's events, with reasoning and tool calls in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim_engine.plan import Turn
from sim_engine.requests import Generation
from sim_engine.responses import Shape, event, to_json
from sim_engine.text import EOS, IDS, PIECE, call_mark


class ScriptedSpeaker:
    """Generates the tokens of one turn."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = iter(ids)

    def go_on_behind(self, ids: Sequence[int]) -> None:
        """As if it had generated these."""
        for _ in ids:
            self.next()

    def next(self) -> int:
        return next(self._ids, EOS)


class ScriptedShape(Shape):
    """The bytes of one turn: a delta for each token, as vLLM's parsers stream them."""

    def __init__(self, request: Generation, model: str, turn: Turn) -> None:
        super().__init__(request, model)
        self._turn = turn
        self._call_ids = [f"chatcmpl-tool-{request.request_id[-32:]}{n}" for n in range(len(turn.calls))]
        self.ids, self._deltas = self._pieces()

    def chunk(self, tokens: Sequence[int], position: int, finish_reason: str | None) -> bytes:
        """Of one token."""
        delta = self._deltas[position] if position < len(self._deltas) else {}
        reason = self._reason(finish_reason)
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            choice["stop_reason"] = None
        choice["token_ids"] = list(tokens) if self._request.token_ids else None
        return event(to_json(self._head | {"choices": [choice]}))

    def _message(self, ids: list[int]) -> dict[str, Any]:
        said = self._deltas[: len(ids)]
        texts = {name: "".join(delta.get(name, "") for delta in said) for name in ("content", "reasoning")}
        message = super()._message([]) | {name: text or None for name, text in texts.items()}
        if len(said) < len(self._deltas) or not self._turn.calls:  # a call that was cut is no call
            return message
        calls = zip(self._call_ids, self._turn.calls, strict=True)
        return message | {
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call_id, call in calls
            ]
        }

    def _reason(self, finish_reason: str | None) -> str | None:
        return self._turn.finish_reason if finish_reason == "stop" else finish_reason

    def _pieces(self) -> tuple[list[int], list[dict[str, Any]]]:
        """The tokens, and the delta of each."""
        ids, deltas = [], []
        for field, text in (("reasoning", self._turn.reasoning), ("content", self._turn.text)):
            for piece in PIECE.findall(text):
                ids.append(IDS[piece])
                deltas.append({field: piece})
        for index, (call_id, call) in enumerate(zip(self._call_ids, self._turn.calls, strict=True)):
            begin = {"id": call_id, "type": "function", "index": index, "function": {"name": call.name}}
            ids.append(call_mark(call.name))
            deltas.append({"tool_calls": [begin]})
            for piece in PIECE.findall(call.arguments):
                ids.append(IDS[piece])
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        return ids, deltas
