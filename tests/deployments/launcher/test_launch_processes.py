"""Processes found and ended by id. What makes itself a daemon is found too.

A subreaper inherits orphans for good, so those tests run a supervisor of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deployments.launcher import processes

SCRIPTS = Path(__file__).parents[3] / "scripts"
LIMIT_S = 10.0

SUPERVISOR = f"""
import json, os, sys
from pathlib import Path
sys.path.insert(0, {str(SCRIPTS)!r})
from deployments.launcher import processes
log = Path(sys.argv[1])
def tell(value):
    print(json.dumps(value), flush=True)
def pids_in_log(count):
    found = lambda: log.exists() and len(log.read_text().split()) == count
    assert processes.wait_until(found, {LIMIT_S})
    return [int(word) for word in log.read_text().split()]
processes.become_subreaper()
"""

# A shell that leaves a daemon behind: started in a session of its own by a parent that ends at once.
DAEMON = "(setsid sh -c 'echo $$; exec sleep 60' &)"
SHORT_DAEMON = "(setsid sh -c 'echo $$; exec true' &); exit 3"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def supervise(body: str, log: Path) -> Any:
    """What a supervisor of its own printed last."""
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR + body, str(log)],
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_alive(pid: int) -> bool:
    found = processes.process_table().get(pid)
    return found is not None and not found.is_zombie


def test_descendants_are_listed_from_the_top_without_zombies_and_strangers() -> None:
    table = {
        pid: processes.ProcessInfo(pid, parent, status)
        for pid, parent, status in [
            (1, 0, psutil.STATUS_SLEEPING),
            (10, 1, psutil.STATUS_SLEEPING),
            (11, 10, psutil.STATUS_SLEEPING),
            (12, 11, psutil.STATUS_RUNNING),
            (13, 10, psutil.STATUS_ZOMBIE),
            (20, 1, psutil.STATUS_SLEEPING),
        ]
    }

    assert processes.descendants(10, table) == [11, 12]
    assert processes.descendants(20, table) == []


def test_a_child_is_found_and_gone_when_it_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    assert sleeper.pid in processes.descendants(os.getpid())

    sleeper.kill()
    sleeper.wait(timeout=LIMIT_S)

    assert sleeper.pid not in processes.descendants(os.getpid())


def test_a_name_with_brackets_and_spaces_does_not_hide_a_process(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "60"]) as process:
        assert processes.wait_until(lambda: "a) Z 1 (b" in processes.describe(process.pid), LIMIT_S)
        found = processes.process_table()[process.pid]
        process.kill()

    assert found.parent == os.getpid()


def test_a_child_runs_in_a_session_of_its_own_and_writes_its_log(tmp_path: Path) -> None:
    child = processes.spawn(
        "shell", ["sh", "-c", "echo hello; ps -o sid= -p $$"], os.environ, tmp_path / "log"
    )

    assert child.process.wait(timeout=LIMIT_S) == 0
    assert child.log_tail().split() == ["hello", str(child.process.pid)]


def test_a_daemon_that_left_its_parent_is_found_and_ended(tmp_path: Path) -> None:
    told = supervise(
        f"""
child = processes.spawn("shell", ["sh", "-c", {DAEMON!r}], os.environ, log)
assert child.process.wait(timeout={LIMIT_S}) == 0
[daemon] = pids_in_log(1)
found = processes.descendants(os.getpid())
ended = processes.end_descendants([child], {LIMIT_S}, {LIMIT_S})
tell({{"daemon": daemon, "found": found, "ended": ended, "left": processes.descendants(os.getpid())}})
""",
        tmp_path / "log",
    )

    assert told["found"] == [told["daemon"]]
    assert told["ended"] == [f"sleep (process {told['daemon']})"]
    assert told["left"] == []
    assert not is_alive(told["daemon"])


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; echo $$; while :; do sleep 1; done"

    told = supervise(
        f"""
child = processes.spawn("stubborn", ["sh", "-c", {stubborn!r}], os.environ, log)
pids_in_log(1)
ended = processes.end_descendants([child], 0.3, {LIMIT_S})
tell({{"code": child.process.returncode, "left": processes.descendants(os.getpid())}})
""",
        tmp_path / "log",
    )

    assert told == {"code": -signal.SIGKILL, "left": []}


def test_orphans_that_have_ended_are_reaped_and_own_children_are_left_to_their_handles(
    tmp_path: Path,
) -> None:
    told = supervise(
        f"""
child = processes.spawn("shell", ["sh", "-c", {SHORT_DAEMON!r}], os.environ, log)
pids_in_log(1)
def only_the_child_is_left():
    processes.reap_orphans([child])
    mine = [process for process in processes.process_table().values() if process.parent == os.getpid()]
    return [(process.pid, process.is_zombie) for process in mine] == [(child.process.pid, True)]
assert processes.wait_until(only_the_child_is_left, {LIMIT_S})
tell(child.process.wait(timeout={LIMIT_S}))
""",
        tmp_path / "log",
    )

    assert told == 3


def test_children_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    body = """
processes.spawn("sleeper", ["sh", "-c", "echo $$; exec sleep 60"], os.environ, log)
tell(pids_in_log(1))
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-c", SUPERVISOR + body, str(tmp_path / "log")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * LIMIT_S, check=False)

    assert done.returncode == -signal.SIGKILL, done.stderr
    [child] = json.loads(done.stdout)
    assert processes.wait_until(lambda: not is_alive(child), LIMIT_S)


def test_shared_memory_that_a_killed_process_left_is_released(tmp_path: Path) -> None:
    segment = Path("/dev/shm", f"promptly-test-{os.getpid()}")
    body = f"import mmap, sys; f = open({str(segment)!r}, 'w+b'); f.write(bytes(65536)); f.flush(); "
    body += "m = mmap.mmap(f.fileno(), 65536); print('mapped', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", body]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        found = processes.shared_memory([process.pid])
        released_while_used = processes.release_shared_memory(found)
        process.kill()

    assert found == {segment}
    assert released_while_used == []
    assert processes.release_shared_memory(found) == [segment]
    assert not segment.exists()


def test_who_listens_on_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.listener_on(port) == processes.describe(os.getpid())
    assert processes.listener_on(port) is None


def test_a_wait_is_bounded_and_gives_the_last_answer() -> None:
    answers = iter([False, False, True])

    assert processes.wait_until(lambda: next(answers), LIMIT_S)
    assert not processes.wait_until(lambda: False, 0.1)
