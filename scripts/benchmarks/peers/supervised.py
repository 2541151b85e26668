"""An application on its own Ray cluster, run by the supervisor of ``make serve``.

The supervisor gives every start its own ports, folder and token, keeps it on the loopback interface, and ends
all its processes, HAProxy included. Promptly and the peers on Ray start in the same way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.peers.processes import running, scratch_folder
from deployments.launcher import ports

READY_TIMEOUT_S = 300.0
PROMPTLY_LAUNCHER = ["-m", "deployments.cli", "serve"]
PEER_LAUNCHER = ["-m", "benchmarks.peers.launch_peer", "--no-check"]


@dataclass(frozen=True)
class Start:
    """``pid``: the supervisor's; all processes of the start are below it. ``variables``: for commands that
    talk to it, such as ``promptly apply``."""

    pid: int
    variables: Mapping[str, str]


def serve_config(name: str, import_path: str, args: Mapping[str, Any], port: int) -> dict[str, Any]:
    """A Serve config file of one application on the loopback interface."""
    application = {"name": name, "route_prefix": "/", "import_path": import_path, "args": dict(args)}
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": ports.LOOPBACK, "port": port},
        "applications": [application],
    }


@contextmanager
def supervised(
    name: str, launcher: Sequence[str], config: Mapping[str, Any], env: Mapping[str, str]
) -> Iterator[Start]:
    """A start whose application is ready."""
    with scratch_folder() as folder:
        file, ready = folder / "config.yaml", folder / "ready.json"
        file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        command = [sys.executable, *launcher, str(file), "--ready-file", str(ready)]
        log = folder / "log"
        with running(name, command, env, log=log, ready=ready.exists, limit_s=READY_TIMEOUT_S) as pid:
            yield Start(pid, json.loads(ready.read_text(encoding="utf-8"))["env"])
