"""The account of what a request causes beside its answer."""

from __future__ import annotations

from typing import Self

from deployments.gateway.request.account import Account
from serve_app.openai.usage import NO_TOKENS
from serve_app.quotas.cost import Use


class Beside(Account):
    """It counts for the sender of that request. The caller that makes it also calls ``ended``."""

    @classmethod
    def of(cls, account: Account) -> Self:
        """``account``: of the request, whose client is shown nothing more. It goes on counting as running,
        if it still does."""
        beside = cls(account._quotas, account._identity, account._path, account._timeline, headers={})
        account._held.hand_permits_to(beside._held, account._senders)
        return beside

    def ended(self) -> None:
        """It pays what members did, once no client waits for that any more."""
        goes_on = self.members.goes_on
        if not self._held.is_over and not (goes_on is not None and goes_on(self._pay_all)):
            self._pay_all()

    def _pay_all(self) -> None:
        self._stop()
        order, counts = self._order, NO_TOKENS
        if order is not None:
            counts = order.credible(self._generated())
            if self.members.cut is None:  # given up before a member began to answer
                counts = self.members.guess(order, self._reserved, counts, self._quotas.lengths) or counts
        prompt = self._reserved.prompt if counts.prompt is None else counts.prompt
        self._held.pay(Use(0, 0) if counts == NO_TOKENS else Use(prompt, counts.output or 0))
        self._held.release()
