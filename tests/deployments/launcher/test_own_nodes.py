"""A cluster that is started by hand: the commands of docs/operations.md, for two nodes on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.documented import ROOT, commands

from deployments.launcher.ports import free_port

BIN = Path(sys.executable).parent
LIMIT_S = 120.0
HEAD, WORKER = "ray start --block --head", "ray start --block --address"


def documented(start: str) -> str:
    (found,) = [each.text for each in commands() if each.text.startswith(start)]
    return found


class Nodes:
    """Their home folder, variables and ports are those of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "HOME": str(folder), "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", script],
            cwd=ROOT,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    @contextmanager
    def started(self, command: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """With the variables of config/cluster.env, and ``more`` words, which are this machine's alone."""
        command = re.sub(r"--port=\d+", f"--port={self.port}", command)
        command = re.sub(r"--address=\S+", f"--address={self.address}", command)
        line = " ".join(["exec", command, "--node-ip-address=127.0.0.1", "--num-cpus=1", *more])
        log = self.folder / "node.log"
        with log.open("ab") as output:
            node = subprocess.Popen(
                ["bash", "-euc", "\n".join((documented("umask 077"), documented("set -a; . config"), line))],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            yield node
        finally:
            node.send_signal(signal.SIGTERM)
            try:
                node.wait(LIMIT_S)
            finally:
                kill_group(node.pid)

    def alive(self) -> int:
        """How many nodes there are, by the client's own token."""
        done = self.run(f"ray status --address={self.address}", RAY_AUTH_MODE="token")
        return len(re.findall(r"^ 1 node_", done.stdout.partition("Pending:")[0], re.MULTILINE))

    def wait(self, nodes: int, last: subprocess.Popen[bytes]) -> None:
        """Until there are as many; ``last`` is the one that is awaited."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.alive()) != nodes:
            log = (self.folder / "node.log").read_text(errors="replace")
            goes_on = last.poll() is None and time.monotonic() < deadline
            assert goes_on, f"{found} nodes\n{log[-3000:]}"


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def home() -> Iterator[Path]:
    """The path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="n-", dir="/tmp") as folder:
        yield Path(folder)


def test_a_cluster_by_hand_has_two_nodes_and_asks_for_its_token(home: Path) -> None:
    nodes = Nodes(home)
    made = nodes.run(f"{documented('umask 077')}\n{documented('ray get-auth-token')}")
    assert made.returncode == 0, made.stderr
    token = home / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o077 == 0
    agents = (f"--dashboard-agent-listen-port={free_port()}", f"--temp-dir={home}/r")
    head = (*agents, f"--dashboard-port={free_port()}", f"--ray-client-server-port={free_port()}")
    with nodes.started(documented(HEAD), *head) as first:
        nodes.wait(1, first)
        with nodes.started(documented(WORKER), f"--dashboard-agent-listen-port={free_port()}") as second:
            nodes.wait(2, second)
            (home / "wrong").write_text("0" * 64)
            refused = nodes.run(
                f"ray status --address={nodes.address}",
                RAY_AUTH_MODE="token",
                RAY_AUTH_TOKEN_PATH=str(home / "wrong"),
            )
            assert refused.returncode != 0
            assert "node_" not in refused.stdout
