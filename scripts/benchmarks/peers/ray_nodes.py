"""A Ray cluster of several nodes on one machine, each with a loopback address of its own.

A node is one ``ray start --block`` with all its processes below it. Killing a node kills all of these at
once, as a power failure does; but unlike then, the kernel closes their connections.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.endpoint import ROOT, PeerError, environment, exchange, wait_for
from benchmarks.peers.processes import end, log_tail, scratch_folder, spawn
from deployments.launcher import processes
from deployments.launcher.plan import venv_program
from deployments.launcher.ports import free_port

HEAD = "127.0.0.2"
"""It is not 127.0.0.1, because Ray would replace that by an address that other machines can reach."""

WORKER = "127.0.0.3"
START_LIMIT_S = 120.0


@dataclass(frozen=True)
class Place:
    """A node: its address, and what Ray may put there."""

    address: str
    cpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)


class Node:
    """One node; it can be killed and started again at the same address."""

    def __init__(self, place: Place, head: int, folder: Path, env: Mapping[str, str]) -> None:
        """``head``: the port at which the head node answers the others."""
        self._place = place
        self._head = head
        self._folder = folder
        self._env = env
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_head(self) -> bool:
        return self._place.address == HEAD

    def is_listening(self) -> bool:
        """Whether other nodes can join. Raises: PeerError: the node ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise PeerError(f"the node {self._place.address} ended by itself\n{self.log}")
        return processes.listener_on(self._head) is not None

    @property
    def pids(self) -> list[int]:
        """The node's processes, ``ray start`` first."""
        if self._process is None:
            return []
        return [self._process.pid, *processes.descendants(self._process.pid)]

    def start(self) -> None:
        self._starts += 1
        if self.is_head:  # as in a new pod; else Ray takes the other node's processes for a running head
            (self._folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
        self._process = spawn(self._command(), self._env, self._log)

    def kill(self) -> None:
        """Send SIGKILL to every process of the node."""
        assert self._process is not None, "start it first"
        for pid in self.pids:
            processes.send_signal(pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._process is not None:
            end(self._process)

    @property
    def log(self) -> str:
        return log_tail(self._log)

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._place.address}-{self._starts}.log"

    def _command(self) -> list[str]:
        role = [f"--address={HEAD}:{self._head}"]
        if self.is_head:
            role = ["--head", f"--port={self._head}", "--include-dashboard=false"]
            role += [f"--ray-client-server-port={free_port()}", f"--temp-dir={self._folder / 'ray'}"]
        return [
            venv_program("ray"),
            "start",
            "--block",
            *role,
            f"--node-ip-address={self._place.address}",
            f"--num-cpus={self._place.cpus}",
            f"--resources={json.dumps(dict(self._place.resources))}",
            "--num-gpus=0",
            "--object-store-memory=100000000",
            # Both nodes are on one machine, so no fixed port may be used twice.
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--disable-usage-stats",
        ]


class RayNodes:
    """The nodes, and the application on them."""

    def __init__(self, nodes: Mapping[str, Node], port: int, folder: Path, env: Mapping[str, str]) -> None:
        self.nodes = nodes
        self._port = port
        self._folder = folder
        self._env = env
        self.url = ""

    def run(self, module: str, given: Mapping[str, Any], limit_s: float = START_LIMIT_S) -> str:
        """Run a Python module that is connected to the cluster from the head node; returns what it printed.

        Raises:
            PeerError: the module failed.
        """
        about = {"address": f"{HEAD}:{self._port}", "node": HEAD, **given}
        command = [sys.executable, "-m", module, json.dumps(about)]
        done = subprocess.run(
            command, env=dict(self._env), capture_output=True, text=True, timeout=limit_s, check=False
        )
        if done.returncode:
            logs = "\n".join(f"{name}: {node.log}" for name, node in self.nodes.items())
            raise PeerError(f"{module} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}\n{logs}")
        return done.stdout

    def deploy(self, **given: Any) -> str:
        """Deploy (``benchmarks.peers.nodes_app``); returns the URL of the application, once it is ready."""
        port = free_port()
        self.run("benchmarks.peers.nodes_app", {"port": port, **given})
        self.url = f"http://127.0.0.1:{port}"
        wait_for(self._is_ready, START_LIMIT_S, "a ready application")
        return self.url

    def _is_ready(self) -> bool:
        try:
            return exchange(self.url, "GET", "/ready")[0] == 200
        except OSError:
            return False


@contextmanager
def ray_nodes(*places: Place, env: Mapping[str, str] | None = None) -> Iterator[RayNodes]:
    """A running cluster; the first place is the head's. At the end nothing of it is left."""
    with scratch_folder() as folder, ExitStack() as stack:
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        variables = environment(
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN_PATH=str(token),
            RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="0",
            RAY_worker_niceness="0",
            TMPDIR=str(folder),
            **(env or {}),
        )
        variables["PYTHONPATH"] = f"{ROOT}:{variables['PYTHONPATH']}"
        port = free_port()
        nodes = {place.address: Node(place, port, folder, variables) for place in places}
        for node in nodes.values():
            stack.callback(node.end)
            node.start()
            if node.is_head:
                wait_for(node.is_listening, START_LIMIT_S, "Ray's head")
        yield RayNodes(nodes, port, folder, variables)
