"""The process of a peer: started in its own session, watched while it starts, and ended by its id."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.endpoint import Endpoint, PeerError, answers_chat, environment, wait_for
from deployments.launcher import processes

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 90.0
KILL_TIMEOUT_S = 10.0
LEFTOVERS_EXIT_S = 5.0
LOG_TAIL_CHARS = 4000


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for a peer's config and log, which is removed with the peer. Its name is short, because Ray
    puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    log: Path,
    ready: Callable[[], bool],
    limit_s: float,
) -> Iterator[int]:
    """The id of a started process, once it is ``ready``. At the end, the process and all its descendants are
    ended.

    Raises:
        PeerError: it ended by itself, or was not ready within ``limit_s`` seconds; the message has the log's
        end.
    """
    process = spawn(command, env, log)

    def is_ready() -> bool:
        if process.poll() is not None:
            raise PeerError(f"ended by itself (exit code {process.returncode})")
        return ready()

    try:
        try:
            wait_for(is_ready, limit_s, "readiness")
        except PeerError as error:
            raise PeerError(f"{name}: {error}\n{log_tail(log)}") from error
        yield process.pid
    finally:
        end(process)


@contextmanager
def server(
    name: str, command: Sequence[str], env: Mapping[str, str], url: str, model: str
) -> Iterator[Endpoint]:
    """Run a server in one process with its children; it is ready when it has answered a chat request."""
    with (
        scratch_folder() as folder,
        running(
            name,
            command,
            environment(**env),
            log=folder / "log",
            ready=lambda: answers_chat(url, model),
            limit_s=READY_TIMEOUT_S,
        ) as pid,
    ):
        yield Endpoint(name, url, model, (pid,))


def spawn(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process that gets SIGTERM when the calling thread ends for any reason."""
    setpriv = shutil.which("setpriv")
    follow = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("wb") as output:
        return subprocess.Popen(
            [*follow, *command],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # only the benchmark gets the terminal's Ctrl-C
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, and SIGKILL to the processes that are left afterwards."""
    below = processes.descendants(process.pid)
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        below += processes.descendants(process.pid)
        process.kill()
        process.wait(KILL_TIMEOUT_S)
    if not processes.wait_until(lambda: not living(below), LEFTOVERS_EXIT_S):
        for pid in living(below):
            processes.send_signal(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # the usual case: the group is empty
        os.killpg(process.pid, signal.SIGKILL)  # children of a process that ended by itself
    processes.wait_until(lambda: not living(below) and group_is_gone(process.pid), KILL_TIMEOUT_S)


def group_is_gone(group: int) -> bool:
    """Whether the process group is empty. The orphans of an ended process are known only by their group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def living(pids: Sequence[int]) -> list[int]:
    table = processes.process_table()
    return [pid for pid in pids if pid in table and not table[pid].is_zombie]


def log_tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARS:]
