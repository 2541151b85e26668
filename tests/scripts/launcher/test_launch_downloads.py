"""A start goes on while weights arrive, and says how far they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from launcher.downloads import Downloads, hub_cache
from launcher.errors import StartError
from launcher.run import Run


class Download:
    """A hub cache whose file grows by a megabyte in each second of its own clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.blobs = folder / "models--owner--model" / "blobs"
        self.blobs.mkdir(parents=True)
        self.said: list[str] = []
        self.grow(1_000_000)
        self.watch = Downloads(folder, lambda: self.now, self.said.append)

    def grow(self, size: int) -> None:
        with (self.blobs / "abc.incomplete").open("wb") as file:
            file.truncate(size)

    def after(self, seconds: float, *, goes_on: bool = True) -> int:
        self.now += seconds
        if goes_on:
            self.grow(int(1_000_000 * (1 + self.now)))
        return self.watch.progress()


def test_bytes_and_rate_are_said_every_half_minute(tmp_path: Path) -> None:
    download = Download(tmp_path)
    assert download.after(10) == 10_000_000
    assert download.said == []
    download.after(590)
    assert download.said == ["    downloading weights: 0.6 GB so far, 1 MB/s"]
    assert download.after(600, goes_on=False) == 600_000_000
    assert len(download.said) == 1


def test_a_finished_file_keeps_its_bytes(tmp_path: Path) -> None:
    download = Download(tmp_path)
    before = download.after(60)
    (download.blobs / "abc.incomplete").rename(download.blobs / "abc")
    assert download.after(60, goes_on=False) == before


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
    ],
)
def test_the_cache_is_where_the_hub_client_has_it(environment: dict[str, str], folder: str) -> None:
    assert hub_cache(environment) == Path(folder)


class Waiting(Run):
    """A run that has nothing to watch."""

    def __init__(self) -> None:
        """No processes."""

    def pause(self) -> None:
        """No time passes but the clock's own."""


def test_a_start_is_given_up_only_without_progress() -> None:
    steps = itertools.count()
    left: Any = iter([False] * 50 + [True])
    Waiting().wait_for(lambda: next(left), 0.0, "the moon", progress=lambda: next(steps))
    with pytest.raises(StartError, match="the moon: not there after 0 s without progress"):
        Waiting().wait_for(lambda: False, 0.0, "the moon", progress=lambda: 1)
