"""The process that deploys: it imports Serve and waits until it is told that Ray is there."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

from deployments.launcher import processes
from deployments.launcher.serve_run import serve_options

COMMAND = [sys.executable, "-m", "deployments.launcher.serve_run", "--help"]


def test_it_runs_serve_run_when_it_is_told(tmp_path: Path) -> None:
    child = processes.spawn("serve run", COMMAND, os.environ, tmp_path / "log", waits=True)
    assert child.process.poll() is None
    child.go_on()
    assert child.process.wait(60) == 0
    assert "Usage: serve run" in child.log.read_text("utf-8")


def test_it_deploys_nothing_when_its_launcher_is_gone() -> None:
    done = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_child_that_ended_meanwhile_is_no_error_of_its_own(tmp_path: Path) -> None:
    child = processes.spawn("gone", ["true"], os.environ, tmp_path / "log", waits=True)
    child.process.wait(60)
    child.go_on()


def test_serve_starts_with_what_the_file_says(tmp_path: Path) -> None:
    from ray.serve import start

    config = tmp_path / "config.yaml"
    config.write_text(
        "proxy_location: HeadOnly\nhttp_options: {host: 127.0.0.2, port: 8123}\ngrpc_options: {port: 9123}\n"
        "applications: [{name: promptly, import_path: serve_app.app:build}]\n"
    )
    options = serve_options(config)
    inspect.signature(start).bind(**options)
    assert options["proxy_location"] == "HeadOnly"
    assert (options["http_options"]["host"], options["http_options"]["port"]) == ("127.0.0.2", 8123)
    assert options["grpc_options"].port == 9123


def test_the_process_ends_where_serve_does_not_start_but_not_for_a_late_proxy() -> None:
    script = (
        "import threading, time\n"
        "from deployments.launcher.serve_run import succeed_or_end\n"
        "def late(): raise TimeoutError('HTTP proxies not available after 60s.')\n"
        "succeed_or_end(late)\n"
        "print('goes on', flush=True)\n"
        "threading.Thread(target=succeed_or_end, args=(lambda: 1 / 0,)).start()\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (1, "goes on\n")
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
