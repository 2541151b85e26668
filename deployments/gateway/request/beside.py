"""The account of what a request causes beside its answer."""

from __future__ import annotations

from typing import Self

from deployments.gateway.request.account import Account, AtMembers
from serve_app.openai.usage import NO_TOKENS
from serve_app.quotas.cost import Use


class Beside(Account):
    """It counts for the sender of that request. Whoever makes it calls ``ended``."""

    @classmethod
    def of(cls, account: Account) -> Self:
        """``account``: of the request, which may be over by now."""
        other = cls.__new__(cls)
        other.__dict__.update(account.__dict__)
        other._taken, other._permits, other._order, other._told = [], [], None, None
        other._scopes, other._reserved, other._headers = account._senders, Use(0, 0), {}
        other.members, other._look, other._more = AtMembers(account._timeline), None, None
        other._is_over = False
        return other

    def ended(self) -> None:
        """It pays what members did, once nobody waits for that any more."""
        goes_on = self.members.goes_on
        if not self._is_over and not (goes_on is not None and goes_on(self._pay_all)):
            self._pay_all()

    def _pay_all(self) -> None:
        self._is_over = True
        for waiting in (self._look, self._more):
            if waiting is not None:
                waiting.cancel()
        told = NO_TOKENS if self._order is None else self._order.credible(self._generated())
        prompt = self._reserved.prompt if told.prompt is None else told.prompt
        self._pay(Use(0, 0) if told == NO_TOKENS else Use(prompt, told.output or 0))
        for permit in self._permits:
            self._quotas.settle(permit, 0)
