"""What the parts of `teams` share: an application with keys and limits behind HAProxy, and its clients."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.engines import scripted_process
from benchmarks.kills import Part, processes
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import Client, Request, Sample, chat_request
from benchmarks.peers import Endpoint, promptly
from benchmarks.peers.endpoint import as_admin, wait_for
from benchmarks.peers.processes import scratch_folder
from deployments.cli.endpoint import asked

ALL_GATEWAYS_S, LEARN_S = 60.0, 2.0
"""The times until all gateways run, and until each gateway has learned of a change."""

USAGE = re.compile(rb'"prompt_tokens": ?(\d+).*?"completion_tokens": ?(\d+)', re.DOTALL)
AGAIN_S = 0.1


@contextmanager
def application(
    gateways: int, *, tokens: int, itl_ms: float, slots: int = 512, **accounts: Any
) -> Iterator[Endpoint]:
    """Run Promptly with ``gateways`` gateways and one scripted engine whose answers have ``tokens``
    tokens."""
    with (
        scratch_folder() as folder,
        scripted_process(MODEL, tokens=tokens, itl_ms=itl_ms, first_token_ms=itl_ms, slots=slots) as engine,
        promptly(with_keys(engine.url, folder, gateways, slots, **accounts)) as endpoint,
    ):
        wait_for(lambda: running(endpoint) >= gateways, ALL_GATEWAYS_S, f"{gateways} gateways")
        time.sleep(LEARN_S)
        yield endpoint


def with_keys(
    engine_url: str, folder: Path, gateways: int = 1, slots: int = 512, **accounts: Any
) -> dict[str, Any]:
    """The settings of an application that keeps its accounts in ``folder``."""
    kept = {"path": str(folder / "accounts"), "min_free_disk_bytes": 0, **accounts}
    auth, limits = {"accounts": True}, {"max_concurrent_requests": slots}
    return settings_for(
        engine_url, slots, auth=auth, accounts=kept, limits=limits, gateway={"replicas": gateways}
    )


def running(endpoint: Endpoint) -> int:
    """The number of running gateways."""
    return len(processes(endpoint, Part("gateways", "Gateway")))


def administer(
    endpoint: Endpoint, path: str, body: Mapping[str, Any] | None = None, method: str | None = None
) -> dict[str, Any]:
    return asked(endpoint.url + path, body, as_admin(), method)


def new_key(endpoint: Endpoint, tenant: str) -> dict[str, Any]:
    """Make a key; returns its ``id``, and its secret as ``key``, once every gateway knows it."""
    made = administer(endpoint, "/admin/keys", {"tenant": tenant})
    time.sleep(LEARN_S)
    return made


def limit(endpoint: Endpoint, scope: str, **bounds: int) -> None:
    """Set a limit; it holds at every gateway when this returns."""
    administer(endpoint, "/admin/limits", {"scope": scope, **bounds}, "PUT")
    time.sleep(LEARN_S)


def chat(key: str, number: int, tokens: int, *, stream: bool = True) -> Request:
    """A request with another question for each number; the answer reports its usage."""
    more = {"stream_options": {"include_usage": True}} if stream else {}
    asked_for = chat_request(MODEL, f"Question {number}.", tokens, stream=stream, **more)
    headers = {"authorization": f"Bearer {key}", "cache-control": "no-store"}
    return replace(asked_for, headers=headers, keep_body=True)


def used(sample: Sample) -> int:
    """The tokens of prompt and answer; of an answer that was cut, only those that arrived."""
    found = USAGE.findall(sample.body or b"")
    return sum(map(int, found[-1])) if found else sample.tokens


async def until_refused(
    client: Client, ask: Callable[[], Request], streams: int, refused_s: float
) -> list[Sample]:
    """Run streams that send one request after the other; each stops once all its requests were refused for
    ``refused_s`` seconds."""
    samples: list[Sample] = []

    async def stream() -> None:
        refused_since: float | None = None
        while refused_since is None or client.now() < refused_since + refused_s:
            sample = await client.send(ask())
            samples.append(sample)
            if sample.status == 200:
                refused_since = None
                continue
            refused_since = client.now() if refused_since is None else refused_since
            await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(stream() for _ in range(streams)))
    return samples
