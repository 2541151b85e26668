"""config/cluster.env gives a cluster what `make serve` gives its own Ray."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import pytest
from support.cluster_door import NODE
from support.front_door import listens_on_loopback_alone

from deployments.launcher import haproxy
from deployments.launcher.config import ServeConfig
from deployments.launcher.folder import StartFolder
from deployments.launcher.plan import ray_environment
from deployments.launcher.ports import Ports, free_port

ROOT = Path(__file__).parents[3]
THIS_START_ALONE = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"}
"""What a start on one machine needs, and a cluster does not: its proxies hear of changes later, and have
ports to themselves."""

PORTS = ("RAY_SERVE_HAPROXY_STATS_PORT", "RAY_SERVE_HAPROXY_METRICS_PORT")


def variables(home: str) -> dict[str, str]:
    """Those that a shell has after it has read the file."""
    read = "set -a; . config/cluster.env; env -0"
    before = {"HOME": home, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", read], cwd=ROOT, env=before, capture_output=True, check=True, timeout=10
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def cluster() -> dict[str, str]:
    return variables("/home/promptly")


@asynccontextmanager
async def front_door(port: int, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """A node's HAProxy in a process of its own, since Serve reads the variables when it is imported."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.cluster_door", str(port)),
        env={**environment, "PYTHONPATH": paths},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def test_every_variable_of_serves_that_a_start_sets_is_there(
    cluster: dict[str, str], ports: Ports, tmp_path: Path
) -> None:
    folder = StartFolder(tmp_path)
    config = ServeConfig(tmp_path / "config.yaml", "127.0.0.1", 8000, "/", None, ())
    start = ray_environment({}, folder, config)
    named = {name for name in start if name.startswith(("RAY_SERVE_", "RAY_worker"))}
    files = {
        name
        for name in haproxy.environment(ports, folder, config)
        if name.startswith("RAY_SERVE_") and not name.endswith("_PORT")
    }
    assert (named | files) - THIS_START_ALONE <= cluster.keys()
    same = named - THIS_START_ALONE
    assert {name: cluster[name] for name in same} == {name: start[name] for name in same}


def test_its_import_paths_lead_somewhere(cluster: dict[str, str]) -> None:
    for name in ("RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH", "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"):
        module, _, function = cluster[name].partition(":")
        assert callable(getattr(import_module(module), function))


def test_the_proxys_files_are_below_a_folder_of_the_users_own(cluster: dict[str, str]) -> None:
    assert cluster["RAY_SERVE_HAPROXY_SOCKET_PATH"].startswith("/home/promptly/.promptly-proxy/")


async def test_a_nodes_proxy_has_statistics_on_loopback_and_an_admin_socket_of_its_user_alone() -> None:
    taken: list[int] = []
    while len(taken) < 3:
        taken.append(free_port(taken=taken))
    port, *others = taken
    with tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as home:  # a socket's path must be short
        ports = dict(zip(PORTS, map(str, others), strict=True))
        async with front_door(port, variables(home) | ports):
            folder = Path(home) / ".promptly-proxy" / NODE
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o600
            assert all(listens_on_loopback_alone(each) for each in (port, *others))
            assert "option splice-request" not in (folder / "haproxy.cfg").read_text()
