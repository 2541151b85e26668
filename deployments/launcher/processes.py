"""Start, find and end the processes of one start, by their ids.

The supervisor is a *child subreaper*: a process of this start whose parent dies, even a daemon, becomes the
supervisor's child. So all processes of the start are always below the supervisor in the process tree, and
none is looked up by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SHARED_MEMORY = "dev/shm/"
POLL_S = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class ProcessInfo:
    """One process; ``status`` is one of psutil's names."""

    pid: int
    parent: int
    status: str

    @property
    def is_zombie(self) -> bool:
        return bool(self.status == psutil.STATUS_ZOMBIE)


@dataclass(frozen=True)
class Child:
    """A process that the supervisor started; its output goes to ``log``."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def go_on(self) -> None:
        """Write the line that a child waits for. One that has ended is found by its exit code."""
        assert self.process.stdin is not None, "it was spawned to wait"
        with contextlib.suppress(BrokenPipeError), self.process.stdin as line:
            line.write(b"\n")

    def log_tail(self, lines: int = 20) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def become_subreaper() -> None:
    """From now on, orphaned descendants become children of this process instead of init's."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def spawn(
    name: str, command: Sequence[str], env: Mapping[str, str], log: Path, *, waits: bool = False
) -> Child:
    """Start a child in its own session, which the terminal's Ctrl-C does not reach. ``waits``: for
    ``Child.go_on``."""
    supervisor = os.getpid()

    def follow_the_supervisor() -> None:
        """Get SIGTERM when the supervisor ends for any reason."""
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            os._exit(1)

    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=follow_the_supervisor,  # noqa: PLW1509 - the supervisor has no threads
        )
    return Child(name, process, log)


def process_table() -> dict[int, ProcessInfo]:
    """Every process of the machine, by id."""
    found = psutil.process_iter(["ppid", "status"])
    return {each.pid: ProcessInfo(each.pid, each.info["ppid"], each.info["status"]) for each in found}


def descendants(root: int, table: Mapping[int, ProcessInfo] | None = None) -> list[int]:
    """The living processes below ``root``, parents before their children."""
    table = process_table() if table is None else table
    children: dict[int, list[ProcessInfo]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: list[ProcessInfo] = list(children.get(root, []))
    for process in found:  # grows while it is walked: breadth first
        found.extend(children.get(process.pid, []))
    return [process.pid for process in found if not process.is_zombie]


def describe(pid: int) -> str:
    """``haproxy (process 123)``, for messages."""
    try:
        name = psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        name = "?"
    return f"{name} (process {pid})"


def reap_orphans(children: Sequence[Child]) -> None:
    """Collect ended processes that this process inherited, but not ``children``, which ``Popen`` collects."""
    own = {child.process.pid for child in children}
    for process in process_table().values():
        if process.parent == os.getpid() and process.is_zombie and process.pid not in own:
            os.waitpid(process.pid, os.WNOHANG)


def wait_until(done: Callable[[], bool], limit_s: float) -> bool:
    """Poll ``done`` for at most ``limit_s`` seconds; its last result."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def end_descendants(children: Sequence[Child], term_s: float, kill_s: float) -> list[str]:
    """Send SIGTERM to every descendant, and SIGKILL after ``term_s`` seconds (0: at once).

    Returns a description of each process that was signalled.
    """
    ended: dict[int, str] = {}
    if term_s > 0 and _signal_until_gone(signal.SIGTERM, term_s, children, ended):
        return list(ended.values())
    _signal_until_gone(signal.SIGKILL, kill_s, children, ended)
    return list(ended.values())


def _signal_until_gone(
    signum: signal.Signals, limit_s: float, children: Sequence[Child], ended: dict[int, str]
) -> bool:
    """Send the signal once to each descendant, also to those that appear meanwhile."""
    signalled: set[int] = set()

    def all_gone() -> bool:
        for child in children:
            child.process.poll()
        reap_orphans(children)
        living = descendants(os.getpid())
        for pid in living:
            if pid not in signalled:
                signalled.add(pid)
                ended.setdefault(pid, describe(pid))
                send_signal(pid, signum)
        return not living

    return wait_until(all_gone, limit_s)


def send_signal(pid: int, signum: signal.Signals) -> None:
    """Signal one process by its id. It is no error if it has just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def shared_memory(pids: Iterable[int]) -> set[Path]:
    """Named shared memory that the processes use. A killed process leaves its segments behind, and those of
    an engine hold hundreds of megabytes."""
    return {path for pid in pids for path in _mapped_segments(pid)}


def _mapped_segments(pid: int) -> Iterator[Path]:
    """psutil would read ``smaps``, for which the kernel walks every page of the process."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # the process has just ended
    for line in maps.splitlines():
        path = line.partition("/")[2]
        if path.startswith(SHARED_MEMORY) and not path.endswith(" (deleted)"):
            yield Path("/", path)


def release_shared_memory(segments: Iterable[Path]) -> list[Path]:
    """Remove the segments that no process uses; returns those that were removed."""
    left = {path for path in segments if path.exists()}
    unused = sorted(left - shared_memory(process_table())) if left else []
    for path in unused:
        path.unlink()
    return unused


def listener_on(port: int) -> str | None:
    """A description of the process that listens on a TCP port; ``None`` if none is visible to this user."""
    for socket in psutil.net_connections(kind="tcp"):
        if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port and socket.pid is not None:
            return describe(socket.pid)
    return None
