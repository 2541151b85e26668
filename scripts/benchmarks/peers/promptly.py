"""Promptly itself, as ``make serve`` starts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.endpoint import Endpoint, environment, local_url
from benchmarks.peers.processes import scratch_folder
from benchmarks.peers.supervised import PROMPTLY_LAUNCHER, serve_config, supervised
from deployments.launcher.ports import free_port

IMPORT_PATH = "serve_app.app:build"


@contextmanager
def promptly(
    settings: Mapping[str, Any], *, name: str = "Promptly", env: Mapping[str, str] | None = None
) -> Iterator[Endpoint]:
    """Run Promptly. ``settings`` are the application's ``args``; the endpoint's model is the first one. A
    cache without a ``path`` gets an empty store, which is removed when Promptly stops; so do responses.
    """
    port = free_port()
    with scratch_folder() as folder:
        responses = {"path": str(folder / "responses"), **settings.get("responses", {})}
        args = with_private_store({**settings, "responses": responses}, folder / "store")
        config = serve_config("promptly", IMPORT_PATH, args, port)
        with supervised(name, PROMPTLY_LAUNCHER, config, environment(**(env or {}))) as start:
            yield Endpoint(name, local_url(port), settings["models"][0]["id"], (start.pid,))


def with_private_store(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    cache = settings.get("cache")
    if cache is None:
        return dict(settings)
    return {**settings, "cache": {"path": str(folder), **cache}}
