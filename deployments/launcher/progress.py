"""How far something long is: bytes, rate, time left; and what vLLM's own lines say of an engine's start. No
clock and no files here."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from serve_app.settings.deployment_names import ENGINE

GB = 1e9
RATE_OVER_S = 60.0
"""The rate is that of the last minute: a link's speed changes."""


class Rate:
    """Bytes per second over the last minute's looks."""

    def __init__(self, now: float, done: int) -> None:
        self._looks = deque([(now, done)])

    def look(self, now: float, done: int) -> None:
        self._looks.append((now, done))
        while len(self._looks) > 2 and now - self._looks[1][0] >= RATE_OVER_S:
            self._looks.popleft()

    @property
    def per_s(self) -> float:
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


def download_line(done: int, total: int | None, per_s: float, since_start: int) -> str:
    """``total``: of the files that are wanted, and ``done`` of them; without it only what came since the
    start is said."""
    rate = f"{per_s / 1e6:.0f} MB/s"
    if not total or done > total:
        return f"downloading weights: {since_start / GB:.1f} GB so far, {rate}"
    left = f", {duration((total - done) / per_s)} left" if per_s > 0 else ""
    share = f"{done / GB:.1f} of {total / GB:.1f} GB ({100 * done / total:.0f} %)"
    return f"downloading weights: {share}, {rate}{left}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


WEIGHTS = (".safetensors", ".bin", ".pt")
"""What vLLM loads, the preferred kind first; it downloads one kind."""

NOT_LOADED = "original/"


def weight_blobs(described: Mapping[str, object]) -> dict[str, int]:
    """The size of each file of weights, by its name in the hub client's cache, from the hub's description of
    a model with its files (`?blobs=true`). Empty where that has no sizes."""
    listed = described.get("siblings")
    files = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    for ending in WEIGHTS:
        found = [each for each in files if _is_weights(str(each.get("rfilename", "")), ending)]
        if found:
            sizes = {_blob(each): each.get("size") for each in found}
            return {name: size for name, size in sizes.items() if name and isinstance(size, int) and size > 0}
    return {}


def _is_weights(name: str, ending: str) -> bool:
    return name.endswith(ending) and not name.startswith(NOT_LOADED)


def _blob(file: Mapping[str, object]) -> str:
    stored = file.get("lfs")
    return str((stored.get("sha256") if isinstance(stored, Mapping) else None) or file.get("blobId") or "")


# ---- an engine's start -----------------------------------------------------------------------------------

NAMED = re.compile(rf"^:actor_name:ServeReplica:[^:]*:({ENGINE}\S+)$")
SIZE = re.compile(r"Checkpoint size: ([\d.]+) GiB")
LEFT = r"(?: \[[\d:]+<([\d:]+),)?"
SHARDS = re.compile(r"checkpoint shards:\s+(\d+)% Completed \| (\d+)/(\d+)" + LEFT)
GRAPHS = re.compile(r"Capturing CUDA graphs[^:]*:\s+(\d+)%\|[^|]*\| (\d+)/(\d+)" + LEFT)
IMPORTS, CORE, LOADING, LOADED = (
    "its process runs, importing vLLM",
    "vLLM begins",
    "loading weights",
    "weights loaded",
)
COMPILING, CAPTURING, ALLOCATED, WARMING = (
    "compiling",
    "capturing CUDA graphs",
    "KV cache allocated",
    "warm-up",
)
ORDER = (IMPORTS, CORE, LOADING, LOADED, COMPILING, CAPTURING, ALLOCATED, WARMING)
"""A stage is not followed by an earlier one: what a replica prints comes from two files."""

STAGES = (
    ("Initializing a V1 LLM engine", CORE),
    ("Starting to load model", LOADING),
    ("Model loading took", LOADED),
    ("Loading weights took", LOADED),
    ("Warming up model for the compilation", COMPILING),
    ("init engine (profile", ALLOCATED),
)
WARM_UP = re.compile(r"-- warm-up: (.+)$")


class EngineStartLines:
    """What one replica's log says of its start. Lines of vLLM 0.29; a line that changes costs a message, no
    start."""

    def __init__(self, engine: str | None = None) -> None:
        self.engine = engine
        self.stage = ""
        """In words; empty before the first known line."""
        self.shown = ""
        """``stage`` with its share."""
        self._gib: float | None = None

    def read(self, line: str) -> None:
        if named := NAMED.match(line):
            self.engine = named[1]
            self._now(IMPORTS)
        if sized := SIZE.search(line):
            self._gib = float(sized[1])
        if shards := SHARDS.search(line):
            self._share(LOADING, "files", shards, self._gib)
        elif graphs := GRAPHS.search(line):
            self._share(CAPTURING, "graphs", graphs)
        elif warm := WARM_UP.search(line):
            self._now(WARMING, f": {warm[1]}")
        else:
            for begin, stage in STAGES:
                if begin in line:
                    self._now(stage)

    def _now(self, stage: str, more: str = "") -> None:
        if not self.stage or ORDER.index(stage) >= ORDER.index(self.stage):
            self.stage, self.shown = stage, stage + more

    def _share(self, stage: str, of: str, found: re.Match[str], gib: float | None = None) -> None:
        percent, done, all_of, left = int(found[1]), int(found[2]), int(found[3]), found[4]
        sized = f", about {gib * done / all_of:.1f} of {gib:.1f} GiB" if gib and all_of else ""
        ends = f", {left} left" if left and left.strip("0:") else ""
        self._now(stage, f": {done} of {all_of} {of} ({percent} %){sized}{ends}")
