"""Which of a partition's vectors are worth a look: some bits of each, kept in memory.

The engine compares a search's vector with every one of the partition, and checks every one's times. Here a
vector is ``CODE_BITS`` bits: on which side of as many random planes it lies. Two vectors differ in a share of
their bits that is their angle over pi (Charikar, "Similarity estimation techniques from rounding algorithms",
STOC 2002), so counting bits finds the few that can be near, and the engine compares those exactly. What it is
given here is a hint: it checks partition and times again, and a wrong hint can only lose an entry.
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
"""Of a code's words, those that a search reads of all entries; it reads the rest of the nearest by these."""

HEAD_KEPT, HEAD_SHARE = 1000, 0.005
"""So many, and this share of a partition, go on from the heads."""

CANDIDATES, PER_RESULT = 48, 16
"""So many, and this many for each result that is asked for, are compared exactly."""

CHUNK = 32768
"""Rows at a time: what is computed of them stays in the processor's cache."""

SAMPLE = 10_000
"""Rows that the heads' distribution is taken from."""

SLACK = 1000
"""Entries that may be gone before the arrays are made anew, beside half of those that are there; and room."""

GONE, UNSEARCHED = 0, 1
"""In place of a partition's key: the entry was removed; it has no vector."""

RECORD = np.dtype(
    [("id", "V16"), ("partition", "<u8"), ("created", "<f8"), ("expires", "<f8"), ("code", "<u8", CODE_WORDS)]
)
"""One entry, in memory and on disk. Times are Unix seconds."""

ONES = np.ones(CODE_WORDS, np.float32)

Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]


class Sketch:
    """The records of one store's entries, and the nearest of them by their bits. Not thread-safe.

    A record is never changed in its place: a new one is added and the old one marked as gone, so that what
    points to places (a block of a partition) stays right until :meth:`compact`.
    """

    def __init__(self, dimension: int, search_from: int) -> None:
        """``search_from``: partitions with fewer entries are left to the engine alone."""
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
        """One record. ``vector`` is float32 bytes, or ``None`` for an entry that is found by its id only.

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
        """Add one record; it takes the place of the entry's former one."""
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
        """Remove entries; returns the records that say so."""
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
        """Whether :meth:`compact` would free much."""
        return self._used - len(self) > len(self) // 2 + SLACK

    def compact(self) -> Records:
        """Forget what is gone; returns the records of all entries."""
        records = self._records[: self._used]
        self.load(records[records["partition"] != GONE])
        return self._records[: self._used]

    def load(self, history: Records) -> None:
        """Hold what this history of records amounts to, and nothing else."""
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
        """The entries to compare for the ``limit`` nearest ones that expire after ``now`` and were not made
        before ``oldest``. ``None``: all of the partition, which is small or has few such entries.

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
    """Where one partition's records are, and the heads of their codes: each word of all of them together.
    Some of the records may be gone."""

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
        """The places of those whose heads differ least, many more than are wanted."""
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
    """One column for each plane. The same in every process and with every numpy: codes are kept on disk."""
    noise = hashlib.shake_256(b"planes").digest(dimension * CODE_BITS)
    return np.frombuffer(noise, np.uint8).reshape(dimension, CODE_BITS).astype(np.float32) - np.float32(127.5)


def _key(partition: str) -> int:
    digest = hashlib.blake2b(partition.encode(), digest_size=8).digest()
    return max(UNSEARCHED + 1, int.from_bytes(digest, "little"))


def _ids(records: Records) -> list[bytes]:
    return _split(records["id"].tobytes())


def _split(ids: bytes) -> list[bytes]:
    return [ids[begin : begin + 16] for begin in range(0, len(ids), 16)]
