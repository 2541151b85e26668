"""What gateways and the store of responses say to each other. JSON of items and responses stays bytes."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StoreError(RuntimeError):
    """The store cannot be opened, read or written; the message names its file or address."""


class Absence(StrEnum):
    """Why something is not there. A tenant sees another tenant's response as ``UNKNOWN``."""

    UNKNOWN = "unknown"
    EXPIRED = "expired"
    EVICTED = "evicted"
    DELETED = "deleted"


class Outcome(StrEnum):
    """What became of a write."""

    STORED = "stored"
    FULL = "full"
    TOO_LARGE = "too_large"
    OVER = "over"
    """It was cancelled or deleted meanwhile: what came later is dropped."""


UNFINISHED = frozenset({"queued", "in_progress"})


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One response. ``response`` is what its client was sent and ``input`` its own input items, a list; both
    JSON. ``tokens``: of input and output together. ``owner`` is the gateway that still generates it. What is
    read has neither ``input`` nor ``output``, which may be large (see ``own_items``)."""

    id: str
    tenant: str
    status: str
    response: bytes
    input: bytes = b"[]"
    previous: str | None = None
    conversation: str | None = None
    output: bytes = b"[]"
    tokens: int = 0
    owner: str | None = None

    @property
    def size(self) -> int:
        return len(self.response) + len(self.input) + len(self.output)


class Found(msgspec.Struct, frozen=True):
    """A response, or why it is not there."""

    record: Record | None = None
    absence: Absence | None = None


class History(msgspec.Struct, frozen=True):
    """What a request goes on from: lists of items as JSON, the oldest first; or why it cannot.

    ``depth``, ``size`` and ``tokens`` tell its size also where it is too large to be sent (``parts`` is
    then empty). ``status``: of the response itself. ``broken``: an earlier response of the chain is gone.
    ``first``: the id of the chain's first response.
    """

    parts: list[bytes] = []
    absence: Absence | None = None
    depth: int = 0
    size: int = 0
    tokens: int = 0
    status: str = "completed"
    broken: bool = False
    first: str | None = None


class ChainBounds(msgspec.Struct, frozen=True):
    """How much a request may refer to."""

    depth: int
    size: int
    tokens: int

    def exceeded(self, history: History) -> str | None:
        """The setting that a history exceeds."""
        if history.depth > self.depth:
            return f"{history.depth} responses, at most {self.depth} (responses.max_chain)"
        if history.size > self.size:
            return f"{history.size} bytes, at most {self.size} (responses.max_chain_bytes)"
        if history.tokens > self.tokens:
            return f"{history.tokens} tokens, at most {self.tokens} (responses.max_chain_tokens)"
        return None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """``metadata`` is JSON, ``created`` Unix seconds."""

    id: str
    created: int
    metadata: bytes = b"{}"


class FoundConversation(msgspec.Struct, frozen=True):
    """``is_full``: what was to be changed has no room, and is as it was."""

    conversation: Conversation | None = None
    absence: Absence | None = None
    is_full: bool = False


class NewItem(msgspec.Struct, frozen=True):
    """An item of a conversation: its id, and all of it as JSON. ``spare`` is its id if another item of the
    conversation has ``id`` already; empty: it is then the same item."""

    id: str
    item: bytes
    spare: str = ""


class Part(msgspec.Struct, frozen=True):
    """Which items of a conversation are listed: at most ``limit``, behind the item ``after``."""

    limit: int
    newest_first: bool = False
    after: str | None = None


class Listed(msgspec.Struct, frozen=True):
    """Items, each as JSON, and whether more follow; or why there are none. ``UNKNOWN`` with
    ``after_is_unknown``: only the item ``after`` is not there."""

    items: list[bytes] = []
    has_more: bool = False
    absence: Absence | None = None
    after_is_unknown: bool = False


class Added(msgspec.Struct, frozen=True):
    """What became of new items: an outcome and their ids, or why their conversation is not there."""

    outcome: Outcome | None = None
    absence: Absence | None = None
    ids: list[str] = []


class StoreStats(msgspec.Struct, frozen=True):
    """``location``: the file. ``error``: why it cannot be used."""

    entries: int = 0
    size: int = 0
    location: str = ""
    error: str | None = None
