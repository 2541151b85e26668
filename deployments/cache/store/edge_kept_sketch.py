"""A sketch that outlives the process: every change is appended to a file beside Qdrant's files.

Qdrant stays the source of truth. After a crash the file may lack the last writes or hold entries that Qdrant
does not have. So the store compares the number of entries when it opens, and repairs the sketch if they
differ (see ``edge_mending.py``).
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import numpy as np

from deployments.cache.store.edge_sketch import RECORD, SLACK, Records, Sketch

logger = logging.getLogger(__name__)

FILE_NAME = "sketch-1"
"""The number is the version of the record layout and the planes; files of other versions are not read."""


class KeptSketch:
    """A sketch and its file. Not thread-safe. File errors never raise: the file is removed, and the next
    start rebuilds the sketch."""

    def __init__(self, folder: Path, dimension: int, search_from: int) -> None:
        self._sketch = Sketch(dimension, search_from)
        self._path = folder / FILE_NAME
        self._file: io.FileIO | None = None
        try:
            history = _read(self._path)
            self._sketch.load(history)
            if len(history) - len(self._sketch) > len(self._sketch) // 2 + SLACK:
                _write_file(self._path, self._sketch.compact())
            self._file = io.FileIO(self._path, "ab")
        except OSError as error:
            self._give_up(error)

    def __len__(self) -> int:
        return len(self._sketch)

    def __contains__(self, entry_id: UUID) -> bool:
        return entry_id.bytes in self._sketch

    def ids(self) -> set[UUID]:
        return {UUID(bytes=one) for one in self._sketch.ids()}

    def put(
        self, entry_id: UUID, partition: str, created: float, expires: float, vector: bytes | None
    ) -> None:
        """``vector`` is float32 bytes.

        Raises:
            ValueError: the vector has another dimension.
        """
        record = self._sketch.record(entry_id.bytes, partition, created, expires, vector)
        self._append(record)
        self._sketch.put(record)
        self._tidy()

    def drop(self, ids: Iterable[UUID]) -> None:
        self._append(self._sketch.drop([one.bytes for one in ids]))
        self._tidy()

    def near(self, partition: str, vector: bytes, now: float, oldest: float, limit: int) -> set[UUID] | None:
        """See :meth:`~deployments.cache.store.edge_sketch.Sketch.near`."""
        return self._sketch.near(partition, vector, now, oldest, limit)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, records: Records) -> None:
        if self._file is None:
            return
        try:
            if self._file.write(records.tobytes()) != records.nbytes:
                raise OSError("a write was cut short")
        except OSError as error:
            self._give_up(error)

    def _tidy(self) -> None:
        if not self._sketch.is_wasteful:
            return
        records = self._sketch.compact()
        if self._file is None:
            return
        try:
            self._file.close()
            _write_file(self._path, records)
            self._file = io.FileIO(self._path, "ab")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        logger.warning("cache store: %s cannot be kept (%s); the next start rebuilds it", self._path, error)
        self.close()
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            logger.warning("cache store: %s is not up to date and should be removed", self._path)


def _read(path: Path) -> Records:
    """Read the whole records; a truncated last record is cut off the file.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return np.zeros(0, RECORD)
    records = np.fromfile(path, RECORD)
    if path.stat().st_size != records.nbytes:
        with path.open("r+b") as stream:
            stream.truncate(records.nbytes)
    return records


def _write_file(path: Path, records: Records) -> None:
    """Write under another name, then rename, so that the old file remains if the process is killed
    meanwhile."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_bytes(records.tobytes())
    unfinished.replace(path)
