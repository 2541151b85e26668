"""Calls between replicas arrive as the values that were sent, and nothing else is read."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest

from serve_app.cache.bound.evidence import EntryEvidence, Observation
from serve_app.cache.entry import CacheEntry, CacheQuery, CacheStats, Doubt, Hit, Miss, Probe
from serve_app.embedding import Embedding
from serve_app.openai.answers import Answer, Usage
from serve_app.wire.calls import CACHE, EMBEDDER, Wire, WireError

VECTOR = np.linspace(-1, 1, 384, dtype=np.float32).tobytes()
ENTRY = CacheEntry(
    entry_id=uuid4(),
    tenant="acme",
    model="m",
    partition="p" * 64,
    text="naïve 鍵 👍 \x00",
    answer=Answer("m", "Paris.", Usage(1, 2, 3), stop_reason=7),
    created_at=1_763_000_000.123456,
    expires_at=1_763_003_600.654321,
    tags=("a", "b"),
    vector=VECTOR,
)
PROBE = Probe(uuid4(), 1.5, 0.25, audited=0.01)


@pytest.mark.parametrize(
    "found",
    [
        Hit(ENTRY),
        Hit(ENTRY, 0.93, epoch=2**62, score=0.5, stale=True),
        Miss(),
        Miss("verifier", PROBE, Doubt(ENTRY, 0.9, 0.4, epoch=3)),
    ],
)
def test_what_a_look_up_finds_arrives_as_it_was(found: Hit | Miss) -> None:
    wire = Wire(CACHE)
    assert wire.decode_result("look_up", wire.encode_result("look_up", found)) == found


@pytest.mark.parametrize(
    "query",
    [
        CacheQuery(uuid4(), "p", "text"),
        CacheQuery(uuid4(), "p", "text", VECTOR, threshold=0.9, max_age_s=1.5),
    ],
)
def test_a_query_arrives_as_it_was(query: CacheQuery) -> None:
    wire = Wire(CACHE)
    assert wire.decode_arguments("look_up", wire.encode_arguments("look_up", (query,))) == (query,)


def test_the_other_calls_arrive_as_they_were() -> None:
    cache, embedder = Wire(CACHE), Wire(EMBEDDER)
    stats = CacheStats(3, 2**62, "/store", None, {"verifier": 2}, {"error": 0.5})
    assert cache.decode_result("stats", cache.encode_result("stats", stats)) == stats
    assert cache.decode_arguments("stats", cache.encode_arguments("stats", ())) == ()
    made = [Embedding(VECTOR, 12, truncated=False, unknown=1)]
    assert embedder.decode_result("embed", embedder.encode_result("embed", made)) == made
    texts = (["one", ""], "tag")
    assert embedder.decode_arguments("embed", embedder.encode_arguments("embed", texts)) == texts


def test_numbers_of_numpy_are_numbers() -> None:
    similarity: Any = np.float32(0.5)
    wire = Wire(CACHE)
    found = wire.decode_result("look_up", wire.encode_result("look_up", Hit(ENTRY, similarity)))
    assert found == Hit(ENTRY, 0.5)


def test_an_entry_keeps_what_is_known_of_it() -> None:
    hit = Hit(replace(ENTRY, evidence=EntryEvidence((Observation(0.5, True),), right=3, wrong=1)))
    wire = Wire(CACHE)
    assert wire.decode_result("look_up", wire.encode_result("look_up", hit)) == hit


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pickle.dumps((1,)),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode([{"entry_id": "x"}]),
        msgspec.msgpack.encode([{"entry_id": bytes(16), "partition": "p", "text": 1}]),
        b"\xa3\xff\xff\xff",
        b"\x91" * 100_000,
    ],
)
def test_what_a_method_does_not_declare_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="look_up"):
        Wire(CACHE).decode_arguments("look_up", data)


def test_a_method_that_is_not_declared_is_neither_sent_nor_read() -> None:
    wire = Wire(CACHE)
    with pytest.raises(WireError, match="no method 'delete'"):
        wire.encode_arguments("delete", ())
    with pytest.raises(WireError, match="no method 'delete'"):
        wire.decode_arguments("delete", msgspec.msgpack.encode([]))


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_a_value_that_has_no_form_is_not_sent(value: Any) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        Wire(EMBEDDER).encode_arguments("embed", ([value], ""))
