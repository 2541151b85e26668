"""Watches the weights arrive in the hub client's cache while engines start, and asks the hub how large they
are."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from deployments.launcher.progress import Rate, download_line, weight_blobs
from deployments.launcher.terminal import say

LOOK_EVERY_S = 5.0
SAY_EVERY_S = 30.0
HUB = "https://huggingface.co"
HUB_TIMEOUT_S = 10.0
MOST_BYTES = 16 << 20
"""Largest description of a model that is read; the largest models have some thousand files."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+\Z")
OFF = frozenset({"1", "ON", "YES", "TRUE"})


def hub_cache(environment: Mapping[str, str]) -> Path:
    """The hub client's cache folder, as the client itself finds it."""
    caches = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or Path(caches, "huggingface")
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    return Path(named or Path(home, "hub")).expanduser()


def hub_is_off(environment: Mapping[str, str]) -> bool:
    """Whether the hub client may ask nobody."""
    return environment.get("HF_HUB_OFFLINE", "").upper() in OFF


def not_fetched(sources: Sequence[tuple[str, str | None]], environment: Mapping[str, str]) -> list[str]:
    """Those of ``sources`` of which the hub client's cache has nothing, as far as it may be read. Whether it
    has all is not looked at."""
    cache = hub_cache(environment)
    folders = {source: cache / f"models--{source.replace('/', '--')}" / "snapshots" for source, _ in sources}
    return [source for source, folder in folders.items() if _is_empty(folder)]


def _is_empty(folder: Path) -> bool:
    try:
        return not (folder.is_dir() and any(folder.iterdir()))
    except OSError:
        return False


class Downloads:
    """Says how much was downloaded, at what rate and, where the hub tells sizes, how much is left. ``clock``
    counts seconds; ``wanted`` gives the sizes of the files of weights by their names in the cache, or nothing
    while they are not known."""

    def __init__(
        self,
        cache: Path,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = say,
        wanted: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._cache = cache
        self._wanted = wanted
        self._clock = clock
        self._tell = tell
        self._first = self._bytes = self._size()
        self._looked = self._said = clock()
        self._said_bytes = self._bytes
        self._rate = Rate(self._looked, self._bytes)

    def progress(self) -> int:
        """Bytes downloaded since the start; a larger number means that the download goes on."""
        now = self._clock()
        if now >= self._looked + LOOK_EVERY_S:
            self._looked, self._bytes = now, self._size()
            self._rate.look(now, self._bytes)
        if now >= self._said + SAY_EVERY_S:
            if self._bytes > self._said_bytes:
                self._tell(f"    {self._line()}")
            self._said, self._said_bytes = now, self._bytes
        return self._bytes - self._first

    def _line(self) -> str:
        wanted = self._wanted()
        there = sum(min(self._arrived(blob), size) for blob, size in wanted.items())
        total = sum(wanted.values()) or None
        return download_line(there, total, self._rate.per_s, self._bytes - self._first)

    def _arrived(self, blob: str) -> int:
        """Also of an unfinished file, which has an ending of its own; the largest attempt counts."""
        return max((_size(path) for path in self._cache.glob(f"models--*/blobs/{blob}*")), default=0)

    def _size(self) -> int:
        """Bytes of all files that were or are being downloaded; each has one blob, links do not count."""
        return sum(_size(path) for path in self._cache.glob("models--*/blobs/*"))


def _size(path: Path) -> int:
    """0 where the file has just been renamed: the next look finds it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class HubSizes:
    """Asks the hub, in a thread of its own, how large the weights of ``sources`` are (each with a revision,
    or none). Calling it gives what is known: all sizes, or nothing where the hub does not give one."""

    def __init__(self, sources: Sequence[tuple[str, str | None]], environment: Mapping[str, str]) -> None:
        self._sources = [each for each in sources if HUB_NAME.match(each[0])]
        self._endpoint = (environment.get("HF_ENDPOINT") or HUB).rstrip("/")
        token = environment.get("HF_TOKEN")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._known: dict[str, int] = {}
        self._thread = threading.Thread(target=self._ask, name="hub sizes", daemon=True)
        if self._sources and not hub_is_off(environment):
            self._thread.start()

    def __call__(self) -> Mapping[str, int]:
        return self._known

    def wait(self, timeout_s: float) -> None:
        """Until the hub has answered, or not."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _ask(self) -> None:
        known: dict[str, int] = {}
        for source, revision in self._sources:
            try:
                found = weight_blobs(self._described(source, revision))
            except (OSError, ValueError):
                return
            if not found:
                return
            known |= found
        self._known = known

    def _described(self, source: str, revision: str | None) -> Mapping[str, object]:
        at = f"/revision/{quote(revision, safe='')}" if revision else ""
        request = urllib.request.Request(
            f"{self._endpoint}/api/models/{source}{at}?blobs=true", headers=self._headers
        )
        # A redirect could carry the token to another host.
        opener = urllib.request.build_opener(NoRedirects)
        with opener.open(request, timeout=HUB_TIMEOUT_S) as response:
            described = json.loads(response.read(MOST_BYTES))
        return described if isinstance(described, Mapping) else {}


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
