"""A generating request, read from vLLM's JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from sim_engine.plan import Plan, Turn, next_turn
from sim_engine.settings import NEVER, SimSettings
from sim_engine.text import render_chat, tokenise

RESUME, TOLD = "/v1/chat/completions/resume", "told_token_ids"
"""What our engines have beside vLLM's paths."""

NOT_SIMULATED = ("echo", "logprobs", "stop")


class Refused(Exception):
    """The request gets an HTTP error with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Generation:
    """One generating request."""

    chat: bool
    request_id: str
    prompt: list[int]
    max_tokens: int
    stream: bool
    usage: bool
    token_ids: bool
    ignore_eos: bool
    salt: str = ""
    """vLLM's ``cache_salt``: prompts of different salts share no block."""
    slots: int = 1
    """How many slots it takes: one per choice."""
    turn: Turn | None = None
    """What a script says; None: the usual words."""
    told: tuple[tuple[int, ...], ...] = ()
    """The answer's tokens so far, in pieces: these are written again, and the answer goes on behind them."""


def parse_generation(
    path: str, body: bytes, request_id: str, settings: SimSettings, plan: Plan = ()
) -> Generation:
    """The request in ``body``.

    Raises:
        Refused: the request is wrong, or needs something that is not simulated.
    """
    try:
        values = json.loads(body)
        chat = "/chat/completions" in path
        request = Generation(
            chat=chat,
            request_id=("chatcmpl-" if chat else "cmpl-") + request_id,
            prompt=_chat_ids(values) if chat else _prompt_ids(values["prompt"]),
            max_tokens=int(values.get("max_completion_tokens") or values.get("max_tokens") or NEVER),
            stream=bool(values.get("stream")),
            usage=bool((values.get("stream_options") or {}).get("include_usage")),
            token_ids=bool(values.get("return_token_ids")),
            ignore_eos=bool(values.get("ignore_eos")),
            salt=str(values.get("cache_salt") or ""),
            slots=int(values.get("n") or 1),
            turn=next_turn(plan, values) if chat else None,
            told=_pieces(values.get(TOLD)) if path == RESUME else (),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"The request is not valid: {error!r}") from error
    if values.get("model", settings.model) != settings.model:
        raise Refused(404, f"The model `{values['model']}` does not exist.")
    if not 1 <= request.slots <= settings.max_n or any(values.get(name) for name in NOT_SIMULATED):
        raise Refused(400, f"Not simulated: n > {settings.max_n}, {', '.join(NOT_SIMULATED)}.")
    room = settings.max_model_len - len(request.prompt)
    if room < 1:
        raise Refused(400, f"Input length ({len(request.prompt)}) exceeds model's maximum context length.")
    return replace(request, max_tokens=min(request.max_tokens, room))


def parse_tokenize(body: bytes) -> list[int]:
    """The tokens of the prompt in a request of ``/tokenize``.

    Raises:
        Refused: it holds neither messages nor a prompt.
    """
    try:
        values = json.loads(body)
        return _chat_ids(values) if "messages" in values else _prompt_ids(values["prompt"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"The request is not valid: {error!r}") from error


def _pieces(told: Any) -> tuple[tuple[int, ...], ...]:
    pieces = tuple(tuple(_prompt_ids(piece)) for piece in told)
    if not pieces:
        raise ValueError("an answer that has no tokens")
    return pieces


def _chat_ids(values: dict[str, Any]) -> list[int]:
    return render_chat(values["messages"], values.get("tools"))


def _prompt_ids(prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return tokenise(prompt)
    if isinstance(prompt, list) and prompt and all(type(id_) is int and 0 <= id_ < 1 << 31 for id_ in prompt):
        return prompt
    raise TypeError("prompt must be a text or a list of token ids")
