"""A gateway's purses: one of each limit, also where a long request refers to one that was forgotten."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from serve_app.quotas.limits import Bound
from serve_app.quotas.purse import Purse


class Purses(OrderedDict[tuple[str, Bound], Purse]):
    """Those that are reported; the one that was taken from last is the last. A purse that was forgotten comes
    back as long as any request refers to it: the owner is told of no other of its key."""

    def __init__(self) -> None:
        super().__init__()
        self._forgotten: WeakValueDictionary[tuple[str, Bound], Purse] = WeakValueDictionary()

    def of(self, scope: str, bound: Bound, tenant: str) -> Purse:
        purse = self.get((scope, bound))
        if purse is None:
            purse = self._forgotten.get((scope, bound)) or Purse(scope, bound, tenant)
            self.keep(purse)
        return purse

    def keep(self, purse: Purse) -> None:
        self.setdefault((purse.scope, purse.bound), purse)

    def touch(self, purse: Purse, now: float) -> None:
        """It is the last to be forgotten."""
        purse.touched = now
        self.move_to_end((purse.scope, purse.bound))

    def forget(self, purse: Purse) -> None:
        key = purse.scope, purse.bound
        self._forgotten[key] = self.pop(key)
