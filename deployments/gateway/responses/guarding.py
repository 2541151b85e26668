"""What the store of responses keeps of a request passes its guards, as what members are sent does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.gateway.guardrails.guards import Guards
from deployments.gateway.request.exchange import Exchange
from serve_app.dialects.responses.request import TypedRequest, read

TEXTS = (
    *("instructions", "metadata", "prompt", "prompt_cache_key", "safety_identifier", "text", "tools", "user"),
)
"""Fields beside the input that a stored response repeats, and in which a client may write anything."""

RESPONSES = "/v1/responses"
"""The path whose guards look at items that are kept for it."""


class StoredTexts:
    """``guards`` is ``None`` without any."""

    def __init__(self, guards: Guards | None) -> None:
        self._guards = guards

    async def request(
        self, exchange: Exchange, asked: TypedRequest, items: Sequence[Mapping[str, Any]]
    ) -> tuple[TypedRequest, Sequence[Mapping[str, Any]]]:
        """The request and its items as they may be kept.

        Raises:
            GuardRefused, GuardUnavailable, BadRequest: it may not be kept.
        """
        given = {name: asked.fields[name] for name in TEXTS if asked.fields.get(name) is not None}
        judged = await self.fields(exchange, {**given, "input": list(items)}, asked.request.model)
        if judged is None:
            return asked, items
        kept = read({**asked.fields, **judged})
        return kept, kept.items

    async def items(self, exchange: Exchange, items: Any, metadata: Any) -> tuple[Any, Any]:
        """The items of a conversation, and what else is written of it. Raises: GuardRefused,
        GuardUnavailable."""
        judged = await self.fields(exchange, {"input": items, "metadata": metadata}, None)
        return (items, metadata) if judged is None else (judged["input"], judged["metadata"])

    async def fields(
        self, exchange: Exchange, fields: dict[str, Any], model: str | None
    ) -> dict[str, Any] | None:
        """``None``: no guard changes them."""
        if self._guards is None:
            return None
        held = self._guards.held_for_any(model, exchange.identity.tenant, RESPONSES)
        if held is None:
            return None
        with exchange.timeline.step("guard"):
            judged: dict[str, Any] = await held.judged(fields)
        return None if judged is fields else judged
