"""config/cluster.env gives a cluster what `make serve` gives its own Ray."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from deployments.launcher import haproxy
from deployments.launcher.config import ServeConfig
from deployments.launcher.folder import StartFolder
from deployments.launcher.plan import ray_environment
from deployments.launcher.ports import pick_ports

ROOT = Path(__file__).parents[3]
THIS_START_ALONE = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"}
"""What a start on one machine needs, and a cluster does not: its proxies hear of changes later, and have
ports to themselves."""


@pytest.fixture(scope="module")
def cluster() -> dict[str, str]:
    """The variables that a shell has after it has read the file."""
    read = "set -a; . config/cluster.env; env -0"
    home = {"HOME": "/home/promptly", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", read], cwd=ROOT, env=home, capture_output=True, check=True, timeout=10
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs}


def test_every_variable_of_serves_that_a_start_sets_is_there(cluster: dict[str, str], tmp_path: Path) -> None:
    folder = StartFolder(tmp_path)
    config = ServeConfig(tmp_path / "config.yaml", "127.0.0.1", 8000, "/", None, ())
    start = ray_environment({}, folder, config)
    named = {name for name in start if name.startswith(("RAY_SERVE_", "RAY_worker"))}
    files = {
        name
        for name in haproxy.environment(pick_ports(), folder, config)
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
