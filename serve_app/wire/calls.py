"""Calls from a gateway to the embedder, the cache and the store of responses: each method's arguments and
result, by type.

Bytes are decoded into the declared types or refused; decoding runs no code from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import msgspec

from serve_app.cache.entry import CacheQuery, CacheStats, Hit, LookUp, Miss
from serve_app.embedding import Embedding
from serve_app.gateways.beginnings import Told
from serve_app.stored_responses.values import (
    Absence,
    Added,
    ChainBounds,
    Conversation,
    Found,
    FoundConversation,
    History,
    Listed,
    NewItem,
    Outcome,
    Part,
    Record,
    StoreStats,
)


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Method:
    """``arguments`` is a tuple type. ``pack`` turns what the method returns into the declared ``result`` (a
    union of dataclasses has no form of its own in MessagePack); ``unpack`` does the reverse."""

    arguments: Any
    result: Any
    pack: Callable[[Any], Any] = _as_it_is
    unpack: Callable[[Any], Any] = _as_it_is


Interface = Mapping[str, Method]
"""A deployment's methods that can be called directly, by name."""


class WireError(ValueError):
    """Bytes do not match the method's declaration, or a value cannot be sent."""


class Wire:
    """Encodes and decodes the calls of one interface. Its methods raise WireError."""

    def __init__(self, interface: Interface) -> None:
        self._methods = dict(interface)
        self._encoder = msgspec.msgpack.Encoder(uuid_format="bytes", enc_hook=_plain)
        self._arguments = {name: msgspec.msgpack.Decoder(each.arguments) for name, each in interface.items()}
        self._results = {name: msgspec.msgpack.Decoder(each.result) for name, each in interface.items()}

    def encode_arguments(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        if method not in self._methods:
            raise WireError(f"no method {method!r} is declared")
        return self._encode(arguments)

    def decode_arguments(self, method: str, data: bytes) -> tuple[Any, ...]:
        return tuple(_decode(self._arguments, method, data))

    def encode_result(self, method: str, result: Any) -> bytes:
        return self._encode(self._methods[method].pack(result))

    def decode_result(self, method: str, data: bytes) -> Any:
        return self._methods[method].unpack(_decode(self._results, method, data))

    def _encode(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(f"cannot be sent: {error}") from error


def _decode(decoders: Mapping[str, msgspec.msgpack.Decoder[Any]], method: str, data: bytes) -> Any:
    try:
        return decoders[method].decode(data)
    except KeyError:
        raise WireError(f"no method {method!r} is declared") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not what {method!r} declares: {error}") from error


def _plain(value: Any) -> float:
    """Numbers of NumPy, which scores may be, as floats. Raises: TypeError."""
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"no type is declared for {type(value).__name__}")


def _both_ways(found: LookUp) -> tuple[Hit | None, Miss | None]:
    return (found, None) if isinstance(found, Hit) else (None, found)


def _one_way(found: tuple[Hit | None, Miss | None]) -> LookUp:
    hit, miss = found
    if hit is not None:
        return hit
    return Miss() if miss is None else miss


EMBEDDER: Interface = {"embed": Method(tuple[list[str], str], list[Embedding])}

CACHE: Interface = {
    "look_up": Method(tuple[CacheQuery], tuple[Hit | None, Miss | None], _both_ways, _one_way),
    "stats": Method(tuple[()], CacheStats),
    "tell": Method(tuple[Told], None),
    "beginning": Method(tuple[bytes, str], bytes),
}

RESPONSES: Interface = {
    "put": Method(tuple[Record, list[NewItem]], Outcome),
    "get": Method(tuple[str, str], Found),
    "history": Method(tuple[str, str, ChainBounds], History),
    "status": Method(tuple[str, str], str | None),
    "own_items": Method(tuple[str, str, bool], History),
    "delete": Method(tuple[str, str], Absence | None),
    "cancel": Method(tuple[str, str], Found),
    "beat": Method(tuple[str, list[str]], list[str]),
    "create_conversation": Method(tuple[str, Conversation, list[NewItem]], Outcome),
    "conversation": Method(tuple[str, str], FoundConversation),
    "set_metadata": Method(tuple[str, str, bytes], FoundConversation),
    "delete_conversation": Method(tuple[str, str], Absence | None),
    "conversation_items": Method(tuple[str, str, ChainBounds], History),
    "listed_items": Method(tuple[str, str, Part], Listed),
    "conversation_item": Method(tuple[str, str, str], Listed),
    "add_items": Method(tuple[str, str, list[NewItem]], Added),
    "delete_item": Method(tuple[str, str, str], Absence | None),
    "stats": Method(tuple[()], StoreStats),
}
"""Each names the tenant first, or in its record. All may be repeated."""
