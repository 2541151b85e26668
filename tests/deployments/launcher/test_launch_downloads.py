"""A start goes on while weights arrive, and says how far they are."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deployments.launcher.downloads import Downloads, HubSizes, hub_cache
from deployments.launcher.errors import StartError
from deployments.launcher.run import Run


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
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
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


class Hub:
    """A hub of descriptions only. ``described``: by path; ``asked``: paths with their authorization."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append((self.path, self.headers.get("authorization")))
                found = described.get(self.path)
                self.send_response(404 if found is None else 302 if isinstance(found, str) else 200)
                if isinstance(found, str):
                    self.send_header("location", found)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: object) -> None:
                """Nothing to the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def described(**sizes: int) -> dict[str, Any]:
    files = [
        {"rfilename": f"{name}.safetensors", "size": size, "lfs": {"sha256": name}}
        for name, size in sizes.items()
    ]
    return {"siblings": [{"rfilename": "config.json", "size": 1, "blobId": "c"}, *files]}


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(
        {
            "/api/models/owner/model?blobs=true": described(abc=1_000_000_000, other=500_000_000),
            "/api/models/owner/model/revision/v%2F1?blobs=true": described(old=7),
            "/api/models/owner/draft?blobs=true": described(draft=500_000_000),
            "/api/models/owner/bare?blobs=true": {"siblings": [{"rfilename": "a.safetensors"}]},
            "/api/models/owner/moved?blobs=true": "http://127.0.0.1:9/elsewhere",
        }
    )
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.05,))
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def sizes(hub: Hub, *sources: tuple[str, str | None], **environment: str) -> HubSizes:
    asked = HubSizes(sources, {"HF_ENDPOINT": f"{hub.url}/", **environment})
    asked.wait(30)
    return asked


def test_the_hub_tells_how_much_is_left(tmp_path: Path, hub: Hub) -> None:
    wanted = sizes(hub, ("owner/model", None), ("owner/draft", None), ("/a/folder", None), HF_TOKEN="hf_x")
    assert wanted() == {"abc": 1_000_000_000, "other": 500_000_000, "draft": 500_000_000}
    assert [authorization for _, authorization in hub.asked] == ["Bearer hf_x"] * 2
    download = Download(tmp_path)
    download.watch = Downloads(tmp_path, lambda: download.now, download.said.append, wanted)
    (download.blobs / "draft").write_bytes(b"")  # there, under the name that it has when it is whole
    download.after(600)
    assert download.said == ["    downloading weights: 0.6 of 2.0 GB (30 %), 1 MB/s, 23 min left"]


def test_a_revision_is_asked_for_by_its_name(hub: Hub) -> None:
    assert sizes(hub, ("owner/model", "v/1"))() == {"old": 7}


@pytest.mark.parametrize("source", ["owner/unknown", "owner/bare", "owner/moved"])
def test_where_one_size_is_not_told_no_total_is_said(hub: Hub, source: str) -> None:
    assert sizes(hub, ("owner/model", None), (source, None))() == {}
    assert all("elsewhere" not in path for path, _ in hub.asked), "a redirect could carry the token away"


def test_a_hub_that_is_off_or_not_there_is_no_problem(hub: Hub) -> None:
    assert sizes(hub, ("owner/model", None), HF_HUB_OFFLINE="1")() == {}
    assert hub.asked == []
    gone = HubSizes([("owner/model", None)], {"HF_ENDPOINT": "http://127.0.0.1:9"})
    gone.wait(30)
    assert gone() == {}
