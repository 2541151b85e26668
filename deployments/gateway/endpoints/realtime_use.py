"""What a live session's member did, in tokens, and what of it is paid."""

from __future__ import annotations

import math
from typing import Final

from deployments.gateway.request.exchange import Exchange
from serve_app.openai.usage import TokenCounts
from serve_app.quotas.cost import Use
from serve_app.realtime.events import EngineEvent

TOKENS_PER_S: Final = 12.5
"""Of live audio, until its member counts: Voxtral Realtime reads a token for each 80 ms
(``VoxtralRealtimeGeneration`` in vLLM 0.29)."""

PAID_S: Final = 30.0
"""Of an utterance so much audio is paid at once, and reserved for what follows."""

NOTHING: Final = Use(0, 0)


class SessionUse:
    """A member counts an utterance at its end. One that is long is paid ahead, and one that does not end is
    paid as it is estimated: an event with text counts as a token."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange  # the gate gives it its account
        self._deltas = 0
        self._paid = NOTHING  # of the utterance now
        self._is_open = False
        self.tokens = TokenCounts(0, 0)

    def begin(self) -> None:
        """An utterance."""
        self._deltas, self._paid, self._is_open = 0, NOTHING, True

    async def said(self, event: EngineEvent) -> None:
        """Raises: RateLimited, BudgetSpent, LimitsUnavailable: there is nothing left for the next turn."""
        self._deltas += bool(event.delta)
        if event.usage is not None:
            used = self._unpaid(Use(event.usage.prompt_tokens, event.usage.completion_tokens or 0))
            self._is_open = False
            await self._pay(used)

    async def heard(self, audio_s: float) -> None:
        """So much of the utterance. Raises: as :meth:`said`."""
        used = self._unpaid(self._estimated(audio_s))
        if used.prompt >= PAID_S * TOKENS_PER_S:
            self._paid = Use(self._paid.prompt + used.prompt, self._paid.output + used.output)
            await self._pay(used)

    def end(self, audio_s: float) -> None:
        """The session ends, so much into an utterance."""
        used = self._unpaid(self._estimated(audio_s))
        if used == NOTHING:
            return
        self._add(used)
        if self._exchange.account is not None:
            self._exchange.account.last_turn(used.prompt, used.output)

    async def _pay(self, used: Use) -> None:
        self._add(used)
        if self._exchange.account is not None:
            await self._exchange.account.turn(used.prompt, used.output)

    def _estimated(self, audio_s: float) -> Use:
        """Nothing of one that its member has counted."""
        if not self._is_open or not audio_s:
            return NOTHING
        return Use(math.ceil(audio_s * TOKENS_PER_S), self._deltas)

    def _unpaid(self, used: Use) -> Use:
        return Use(max(0, used.prompt - self._paid.prompt), max(0, used.output - self._paid.output))

    def _add(self, used: Use) -> None:
        prompt, output = self.tokens.prompt or 0, self.tokens.output or 0
        self.tokens = TokenCounts(prompt + used.prompt, output + used.output)
