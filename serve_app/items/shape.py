"""The contract between a request for items and the code that answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

NOT_SHAPING = frozenset({"model", "user", "safety_identifier", "request_id", "priority"})
"""Fields that do not influence an item."""


@dataclass(frozen=True, slots=True)
class Split:
    """A request as its items: ``items`` are the JSON of each, by which it is known; ``shared`` are the other
    fields that shape them. ``first``: the JSON of a text that is read with each item; an item is then that
    of the pair."""

    items: tuple[bytes, ...]
    shared: Mapping[str, Any]
    first: bytes | None = None

    def texts(self, wanted: Iterable[int]) -> Iterator[bytes]:
        """The JSON of these items, without the text that is read with each."""
        skipped = 0 if self.first is None else len(self.first) + len("[,")
        return (self.items[index][skipped:] for index in wanted)


@dataclass(frozen=True, slots=True)
class Answered:
    """An engine's answer as its items: ``values`` are their JSON without their position; ``head`` are the
    other fields of the answer."""

    values: tuple[bytes, ...]
    head: Mapping[str, msgspec.Raw]


class Shape(Protocol):
    """How one path writes items in requests and answers."""

    @property
    def family(self) -> str:
        """Requests of one family share items."""
        ...

    def split(self, fields: Mapping[str, Any]) -> Split | None:
        """``None``: the request cannot be answered item by item; it is left to the engine."""
        ...

    def only(self, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
        """The same request for the items at these positions."""
        ...

    def read(self, body: bytes, count: int) -> Answered | None:
        """An engine's answer to a request for ``count`` items; ``None``: it has another form."""
        ...

    def head(self, request_id: str, created: int, model: str) -> Mapping[str, Any]:
        """The head of an answer for which no engine was asked: its usage is zero."""
        ...

    def write(self, fields: Mapping[str, Any], head: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
        """The answer to the request ``fields``, with all of its items."""
        ...


def encoded(value: Any) -> bytes:
    """JSON in which equal values have equal bytes."""
    return msgspec.json.encode(value, order="deterministic")


def without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields that shape items, without those that hold them."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and name not in NOT_SHAPING and name not in names
    }


def at(index: int, value: bytes) -> msgspec.Raw:
    """An item of an answer: ``value`` is a JSON object that is not empty."""
    return msgspec.Raw(b'{"index":%d,%b' % (index, value[1:]))


def read_list(body: bytes, field: str, count: int) -> Answered | None:
    """An answer whose ``field`` is a list of objects with an ``index``."""
    try:
        head = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        listed = msgspec.json.decode(head.pop(field), type=list[dict[str, msgspec.Raw]])
        values: list[bytes | None] = [None] * count
        for item in listed:
            index = msgspec.json.decode(item.pop("index"), type=int)
            if not item or not 0 <= index < count:
                return None
            values[index] = msgspec.json.encode(item)
    except (msgspec.MsgspecError, KeyError):
        return None
    found = tuple(value for value in values if value is not None)
    return Answered(found, head) if len(found) == count == len(listed) else None
