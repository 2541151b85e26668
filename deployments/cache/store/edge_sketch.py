"""Selects the vectors of a partition that may be near a query, by a short binary code of each vector in
memory.

Without the codes Qdrant compares the query with every vector of the partition and checks the times of every
entry. Here each vector has a code of ``CODE_BITS`` bits: on which side of that many random planes it lies.
The expected share of differing bits of two vectors is their angle divided by pi (Charikar, "Similarity
estimation techniques from rounding algorithms", STOC 2002). So counting bits finds the few candidates, and
Qdrant compares those exactly. The candidates are only a hint: the store checks partition and times again, so
a wrong hint can only lose an entry.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import numpy as np
import numpy.typing as npt

CODE_WORDS = 8
CODE_BITS = 64 * CODE_WORDS
HEAD_WORDS = 2
"""The words of a code that a search reads for every entry (its head); the rest is read only for the nearest
ones."""

HEAD_KEPT, HEAD_SHARE = 1000, 0.005
"""How many entries pass the comparison of heads: at least this number, and at least this share of the
partition."""

CANDIDATES, PER_RESULT = 48, 16
"""How many entries are compared exactly: at least this number, and at least this many per requested
result."""

CHUNK = 32768
"""Rows computed at a time, so that intermediate results stay in the CPU's cache."""

SAMPLE = 10_000
"""Rows from which the distribution of the heads' distances is estimated."""

SLACK = 1000
"""Removed entries that are tolerated before the arrays are rebuilt (plus half the number of live ones); also
the number of spare rows that are allocated."""

GONE, UNSEARCHED = 0, 1
"""Special values of a record's partition key: the entry was removed; the entry has no vector."""

RECORD = np.dtype(
    [("id", "V16"), ("partition", "<u8"), ("created", "<f8"), ("expires", "<f8"), ("code", "<u8", CODE_WORDS)]
)
"""One entry, in memory and on disk. Times are Unix seconds."""

ONES = np.ones(CODE_WORDS, np.float32)

Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]


class Sketch:
    """The records of one store's entries, and the search for the nearest of them by code. Not thread-safe.
    It is one class because records, rows, sizes and blocks change together.

    Records are append-only: a change adds a new record and marks the old one as gone, so row numbers (held by
    a partition's block) stay valid until :meth:`compact`.
    """

    def __init__(self, dimension: int, search_from: int) -> None:
        """``search_from``: smaller partitions are left to Qdrant alone."""
        self._dimension = dimension
        self._search_from = search_from
        self._planes = _planes(dimension)
        self._records = _with_room(np.zeros(0, RECORD))
        self._used = 0
        self._places: dict[bytes, int] = {}
        self._sizes: Counter[int] = Counter()
        self._blocks: dict[int, _Block] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, entry_id: bytes) -> bool:
        return entry_id in self._places

    def ids(self) -> set[bytes]:
        return set(self._places)

    def record(
        self, entry_id: bytes, partition: str, created: float, expires: float, vector: bytes | None
    ) -> Records:
        """Make one record. ``vector`` is float32 bytes, or ``None`` for an entry that is found only by its
        id.

        Raises:
            ValueError: the vector has another dimension.
        """
        record = np.zeros(1, RECORD)
        record["id"] = np.void(entry_id)
        record["created"], record["expires"] = created, expires
        record["partition"] = UNSEARCHED if vector is None else _key(partition)
        if vector is not None:
            record["code"] = self._code(vector)
        return record

    def put(self, record: Records) -> None:
        """Add one record; it replaces the entry's previous one."""
        entry_id = record["id"].tobytes()
        self.drop([entry_id])
        place, key = self._used, int(record["partition"][0])
        if place == len(self._records):
            self._records = _with_room(self._records)
        self._records[place] = record[0]
        self._used += 1
        self._places[entry_id] = place
        self._sizes[key] += 1
        if key in self._blocks:
            self._blocks[key].append(place, record["code"][0])

    def drop(self, ids: Iterable[bytes]) -> Records:
        """Remove entries; returns the records that mark them as gone."""
        places = [place for place in (self._places.pop(one, None) for one in ids) if place is not None]
        gone = self._records[places]
        self._records["partition"][places] = GONE
        for key, count in Counter(gone["partition"].tolist()).items():
            self._sizes[key] -= count
            if not self._sizes[key]:
                del self._sizes[key]
                self._blocks.pop(key, None)
        gone["partition"] = GONE
        return gone

    @property
    def is_wasteful(self) -> bool:
        """Whether so many records are gone that :meth:`compact` is worth its cost."""
        return self._used - len(self) > len(self) // 2 + SLACK

    def compact(self) -> Records:
        """Drop the records that are gone; returns the remaining records."""
        records = self._records[: self._used]
        self.load(records[records["partition"] != GONE])
        return self._records[: self._used]

    def load(self, history: Records) -> None:
        """Replace the contents by the result of replaying this history of records."""
        last = dict(zip(_ids(history), range(len(history)), strict=True))
        places = np.fromiter(last.values(), np.intp, len(last))
        places.sort()
        records = history[places[history["partition"][places] != GONE]]
        self._records = _with_room(records)
        self._used = len(records)
        self._places = dict(zip(_ids(records), range(self._used), strict=True))
        keys, counts = np.unique(records["partition"], return_counts=True)
        self._sizes = Counter(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
        self._blocks = {}

    def near(self, partition: str, vector: bytes, now: float, oldest: float, limit: int) -> set[UUID] | None:
        """The candidates for the ``limit`` nearest entries that expire after ``now`` and were made at
        ``oldest`` or later. ``None``: compare the whole partition, because it is small or has few such
        entries.

        Raises:
            ValueError: the vector has another dimension.
        """
        key, wanted = _key(partition), max(CANDIDATES, PER_RESULT * limit)
        if self._sizes[key] < max(self._search_from, wanted + 1):
            return None
        code = self._code(vector)
        rows = self._records.take(self._block(key).nearest(code, wanted))
        fits = (rows["partition"] == key) & (rows["expires"] > now) & (rows["created"] >= oldest)
        if np.count_nonzero(fits) < limit:
            return None
        differing = np.bitwise_count(rows["code"] ^ code).astype(np.float32) @ ONES
        differing[~fits] = np.inf
        best = np.argpartition(differing, min(wanted, len(rows) - 1))[:wanted]
        return {UUID(bytes=one) for one in _split(rows["id"][best[fits[best]]].tobytes())}

    def _block(self, key: int) -> _Block:
        if key not in self._blocks:
            places = np.flatnonzero(self._records["partition"][: self._used] == key)
            heads = self._records["code"][places, :HEAD_WORDS].T
            self._blocks[key] = _Block(places, np.ascontiguousarray(heads))
        return self._blocks[key]

    def _code(self, vector: bytes) -> Words:
        values = np.frombuffer(vector, np.float32)
        if len(values) != self._dimension:
            raise ValueError(f"the vector's dimension is {len(values)}, the store's {self._dimension}")
        return np.packbits(values @ self._planes > 0).view(np.uint64)


class _Block:
    """The row numbers of one partition's records and the heads of their codes, stored word by word (one array
    row per word). Some of the records may be gone."""

    def __init__(self, places: npt.NDArray[np.intp], heads: Words) -> None:
        self._size = len(places)
        self._places = places
        self._heads = heads

    def append(self, place: int, code: Words) -> None:
        if self._size == len(self._places):
            self._places = np.concatenate([self._places, np.zeros_like(self._places)])
            self._heads = np.concatenate([self._heads, np.zeros_like(self._heads)], axis=1)
        self._places[self._size] = place
        self._heads[:, self._size] = code[:HEAD_WORDS]
        self._size += 1

    def nearest(self, code: Words, wanted: int) -> npt.NDArray[np.intp]:
        """The row numbers of the records whose heads differ least; they are many more than ``wanted``."""
        differing = np.empty(self._size, np.uint8)
        head = code[:HEAD_WORDS, np.newaxis]
        for begin in range(0, self._size, CHUNK):
            end = min(begin + CHUNK, self._size)
            counts = np.bitwise_count(self._heads[:, begin:end] ^ head)
            np.add.reduce(counts, axis=0, out=differing[begin:end])
        kept = max(HEAD_SHARE, (HEAD_KEPT + wanted) / self._size)
        sample = differing[:: 1 + self._size // SAMPLE]
        most = int(np.searchsorted(np.cumsum(np.bincount(sample)), kept * len(sample)))
        return self._places[np.flatnonzero(differing <= most)]


def _with_room(records: Records) -> Records:
    return np.concatenate([records, np.zeros(len(records) // 4 + SLACK, RECORD)])


def _planes(dimension: int) -> npt.NDArray[np.float32]:
    """The planes, one per column. They are the same in every process and numpy version, because codes are
    kept on disk."""
    noise = hashlib.shake_256(b"planes").digest(dimension * CODE_BITS)
    return np.frombuffer(noise, np.uint8).reshape(dimension, CODE_BITS).astype(np.float32) - np.float32(127.5)


def _key(partition: str) -> int:
    digest = hashlib.blake2b(partition.encode(), digest_size=8).digest()
    return max(UNSEARCHED + 1, int.from_bytes(digest, "little"))


def _ids(records: Records) -> list[bytes]:
    return _split(records["id"].tobytes())


def _split(ids: bytes) -> list[bytes]:
    return [ids[begin : begin + 16] for begin in range(0, len(ids), 16)]
