"""The fork server belongs to its process, so each test has a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]

CHILD = """
import json, logging, os, sys
TOLD = os.environ.get("OMP_NUM_THREADS")

def tell(*, answers):
    from vllm.utils.system_utils import set_process_title
    import torch
    set_process_title("EngineCore")
    answers.put({
        "at import": TOLD,
        "threads": torch.get_num_threads(),
        "was imported": "vllm.logger" in sys.modules,
        "new": os.environ.get("NEW"),
        "gone": os.environ.get("GONE"),
        "title": open("/proc/self/cmdline").read().split(chr(0))[0].split(" ")[0],
        "parent": os.getppid(),
        "level": logging.getLogger("vllm").level,
    })

import vllm.logger
"""

PARENT = """
import json, os
from deployments.engine.vllm.fork_server import ForkServer

def main():
    os.environ["GONE"] = "gone"
    own = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    server = ForkServer(own, imported="child")
    left = os.environ.get("OMP_NUM_THREADS")
    del os.environ["GONE"]
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    from vllm.v1.engine import utils
    import child
    own = utils.get_mp_context
    os.environ["OMP_NUM_THREADS"] = "1"
    with server.forking_cores():
        context = utils.get_mp_context()
        answers = context.Queue()
        process = context.Process(target=child.tell, name="EngineCore", kwargs={"answers": answers})
        os.environ["NEW"] = "set just before the start"
        process.start()
        told = answers.get(timeout=60)
        process.join(60)
    told |= {"ended": process.exitcode, "left": left, "restored": utils.get_mp_context is own}
    print(json.dumps(told | {"is own child": told["parent"] == os.getpid()}))

if __name__ == "__main__":
    main()
"""


def run_parent(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    return subprocess.run(
        [sys.executable, str(folder / "parent.py"), *arguments],
        env=environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"} | variables,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def told(folder: Path) -> dict[str, Any]:
    (folder / "child.py").write_text(CHILD)
    (folder / "parent.py").write_text(PARENT)
    done = run_parent(folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


KILLED = """
import os, signal, sys
from deployments.engine.vllm.fork_server import ForkServer

def main():
    server = ForkServer({"TORCHINDUCTOR_COMPILE_THREADS": "1"}, imported="child")
    from vllm.v1.engine import utils
    import child
    with server.forking_cores():
        context = utils.get_mp_context()
        started = context.Queue()
        context.Process(target=child.stay, name="EngineCore", kwargs={"started": started}).start()
        print(started.get(timeout=60), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    main()
"""

STAYS = """
import os, signal
import vllm.logger

def stay(*, started):
    started.put(os.getpid())
    signal.pause()
"""


def test_a_core_ends_with_a_replica_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(STAYS)
    (tmp_path / "parent.py").write_text(KILLED)
    done = run_parent(tmp_path)  # returns when no process has the output open: neither replica nor core
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.splitlines()[-1].isdecimal(), "the core had begun"


def test_a_core_begins_with_the_imports_of_the_server_and_the_environment_of_the_replica(
    tmp_path: Path,
) -> None:
    found = told(tmp_path)
    assert (found["was imported"], found["is own child"], found["ended"]) == (True, False, 0)
    assert (found["at import"], found["threads"], found["left"]) == ("1", 1, None)
    assert (found["new"], found["gone"]) == ("set just before the start", None)
    assert found["title"] == "VLLM::EngineCore"
    assert found["level"] == 40, "vLLM's log is configured by the environment that the core is given"
    assert found["restored"]


SPAWNS = """
import logging, sys
from deployments.engine.vllm.fork_server import ForkServer
from vllm.v1.engine import utils

def main():
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    own = utils.get_mp_context
    limit, *variables = sys.argv[1:]
    server = ForkServer(dict(each.split("=") for each in variables), imported="child", limit_s=float(limit))
    with server.forking_cores():
        methods = [utils.get_mp_context().get_start_method() for _ in range(2)]
    print(*methods, utils.get_mp_context is own)

if __name__ == "__main__":
    main()
"""

UTILS = """
import multiprocessing

def get_mp_context():
    return multiprocessing.get_context("spawn")
"""

HANGS = """
import signal
signal.pause()
"""

ENDS = """
import os
os._exit(3)
"""


def said_as_it_spawns(folder: Path, child: str, *arguments: str, **variables: str) -> str:
    """The line of its log. It returns when no process has the output open: not the fork server either.
    Nothing of vLLM is needed."""
    package = folder / "vllm" / "v1" / "engine"
    package.mkdir(parents=True)
    for part in (package, *package.parents[:2]):
        (part / "__init__.py").touch()
    (package / "utils.py").write_text(UTILS)
    (folder / "child.py").write_text(child)
    (folder / "parent.py").write_text(SPAWNS)
    done = run_parent(folder, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "spawn spawn True\n"
    (line,) = done.stderr.splitlines()
    return line


def test_a_core_is_spawned_where_the_import_hangs(tmp_path: Path) -> None:
    assert said_as_it_spawns(tmp_path, HANGS, "0.1") == (
        "vLLM's core is spawned, not forked: the fork server has not imported vLLM after 0 s"
    )


def test_a_core_is_spawned_where_the_server_has_ended(tmp_path: Path) -> None:
    assert said_as_it_spawns(tmp_path, ENDS, "60").endswith("not forked: the fork server has ended")


def test_a_core_is_spawned_where_no_server_can_start(tmp_path: Path) -> None:
    """Its socket has a path of at most 107 bytes."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    said = said_as_it_spawns(tmp_path, HANGS, "60", TMPDIR=str(folder))
    assert said.endswith("not forked: no fork server: AF_UNIX path too long")


def test_a_core_is_spawned_where_its_threads_differ_from_those_of_the_server(tmp_path: Path) -> None:
    said = said_as_it_spawns(tmp_path, HANGS, "60", "OMP_NUM_THREADS=1")
    assert said.endswith("not forked: other values of OMP_NUM_THREADS")
