"""vLLM's side of a stream, written down: a fixed answer in tokens, in the events that vLLM 0.29 sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from serve_app.openai.continuation import Ending, EngineRequest, ResumableStream, TokenLimits
from serve_app.openai.requests import Endpoint, ParsedRequest

Step = Callable[[int], str | None]
"""The text that one more token of the answer brings; ``None`` while it is kept back."""

END_OF_TEXT = 256
CONTEXT = 2048
FINGERPRINT = "vllm-0.29.0-636d2e16"


class ByteTokenizer:
    """A token per byte, so that every character beyond ASCII is several tokens."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(token for token in tokens if token != END_OF_TEXT).decode(errors="replace")

    def decode_stream(self, prompt: list[int]) -> Step:
        """As the library ``tokenizers`` does it: a prompt that ends inside a character is not known to have
        been said, so its text comes with the answer's."""
        known = self.decode(prompt)
        said = "" if known.endswith("\ufffd") else known
        tokens = list(prompt)

        def step(token: int) -> str | None:
            nonlocal said
            tokens.append(token)
            text = self.decode(tokens)
            if len(text) <= len(said) or text.endswith("\ufffd"):
                return None
            new, said = text[len(said) :], text
            return new

        return step


@dataclass
class ScriptedEngine:
    """Answers every request with ``answer`` or, asked to continue, with what is left of it.

    ``tokens_per_chunk`` is more than one under speculation and load.
    """

    prompt: list[int]
    answer: list[int]
    tokenizer: Any = field(default_factory=ByteTokenizer)
    end_of_text: int = END_OF_TEXT
    tokens_per_chunk: int = 1
    _answered: dict[bytes, list[bytes]] = field(default_factory=dict)

    def events(self, request: EngineRequest) -> list[bytes]:
        """The response to ``request``; the same one has the same id again, which no client can expect."""
        key = request.endpoint.value.encode() + request.body()
        if key not in self._answered:
            self._answered[key] = self._events(request)
        return self._answered[key]

    def _events(self, request: EngineRequest) -> list[bytes]:
        fields = request.fields
        tokens, said = self.answer, 0
        prompt = list(self.prompt)
        if isinstance(fields.get("prompt"), list):
            prompt = fields["prompt"]
            said = len(prompt) - len(self.prompt)
            assert prompt == self.prompt + self.answer[:said]
            tokens = self.answer[said:]
            assert not self.tokenizer.decode(prompt).endswith("\ufffd"), "a prompt inside a character"
        default = CONTEXT - len(prompt) if request.endpoint is Endpoint.CHAT else 16
        allowed = fields.get("max_tokens") or default
        assert len(prompt) + allowed <= CONTEXT, "vLLM refuses this with 400"
        return [_event(value) for value in self._values(request, prompt, tokens[:allowed])] + [
            b"data: [DONE]\n\n"
        ]

    def _values(
        self, request: EngineRequest, prompt: list[int], tokens: list[int]
    ) -> Iterator[dict[str, Any]]:
        fields, number = request.fields, len(self._answered)
        ids = bool(fields.get("return_token_ids"))
        usage = bool((fields.get("stream_options") or {}).get("include_usage"))
        chat = request.endpoint is Endpoint.CHAT
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{number}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1795250000 + number,
            "model": "m",
        }
        if chat:
            role = {"role": "assistant", "content": ""}
            choice = {"index": 0, "delta": role, "logprobs": None, "finish_reason": None}
            yield head | {
                "choices": [choice],
                "prompt_token_ids": prompt if ids else None,
                "prompt_text": None,
            }
        step, first = self.tokenizer.decode_stream(prompt), True
        for start in range(0, len(tokens), self.tokens_per_chunk):
            new = tokens[start : start + self.tokens_per_chunk]
            last = start + len(new) == len(tokens)
            text = "".join(step(token) or "" for token in new if token != self.end_of_text)
            reason = ("stop" if new[-1] == self.end_of_text else "length") if last else None
            parts = (text, reason, prompt if ids and first else None, new if ids else None)
            fingerprint = {"system_fingerprint": FINGERPRINT} if last and not usage else {}
            yield head | {"choices": [(_chat_choice if chat else _text_choice)(*parts)]} | fingerprint
            first = False
        if usage:
            numbers = (len(prompt), len(prompt) + len(tokens), len(tokens))
            named = dict(zip(("prompt_tokens", "total_tokens", "completion_tokens"), numbers, strict=True))
            yield head | {"choices": [], "usage": named, "system_fingerprint": FINGERPRINT}


def undisturbed(request: ParsedRequest, engine: ScriptedEngine) -> bytes:
    """What the client would have got, no engine lost and no tokens asked for."""
    return b"".join(engine.events(EngineRequest(request.endpoint, dict(request.fields))))


def delivered(
    request: ParsedRequest,
    engine: ScriptedEngine,
    *cuts: int,
    piece: int = 1 << 20,
    in_events: bool = False,
) -> bytes:
    """What the client gets when engines die one after the other, each after so many bytes (or events) of its
    response; bytes are read in pieces of at most ``piece``."""
    stream, received = ResumableStream(request), b""
    asked = stream.opening
    for cut in (*cuts, None):
        events = engine.events(asked)
        sent = b"".join(events[:cut]) if in_events else b"".join(events)[:cut]
        received += b"".join(stream.feed(sent[start : start + piece]) for start in range(0, len(sent), piece))
        if stream.done:
            return received
        settle(stream, engine)
        step = stream.resume(TokenLimits(context=CONTEXT))
        assert step is not None
        if isinstance(step, Ending):
            return received + step.events
        asked = step
    raise AssertionError("the last engine did not end the stream")


def settle(stream: ResumableStream, engine: ScriptedEngine) -> None:
    while tokens := stream.unsettled:
        stream.settle(engine.tokenizer.decode(tokens))


def _chat_choice(
    text: str, reason: str | None, prompt_ids: list[int] | None, ids: list[int] | None
) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    return choice | ({"stop_reason": None} if reason else {}) | {"token_ids": ids}


def _text_choice(
    text: str, reason: str | None, prompt_ids: list[int] | None, ids: list[int] | None
) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return choice | {"prompt_token_ids": prompt_ids, "token_ids": ids}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
