"""What the supervisor refuses before it starts anything, and how it hears that it should stop.

A whole start is in tests/e2e.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from deployments.launcher.announcement import write_atomically
from deployments.launcher.errors import StartError
from deployments.launcher.options import DRAIN_S, READY_TIMEOUT_S, parse_options
from deployments.launcher.processes import wait_until
from deployments.launcher.run import Run
from deployments.launcher.signals import StopSignals
from deployments.launcher.supervise import supervise

ROOT = Path(__file__).parents[3]
CONFIG = """\
http_options: {{host: 127.0.0.1, port: {port}}}
applications:
  - import_path: serve_app.app:build
    args:
      models: [{{id: a, source: b}}]
      {more}
"""


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """Puts back the handlers that the test replaces."""
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(signum) for signum in watched]
    yield
    for signum, handler in zip(watched, before, strict=True):
        signal.signal(signum, handler)


def run_launch(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deployments.cli", "serve", str(config), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_wrong_settings_are_refused_with_their_message_alone(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text(CONFIG.format(port=8000, more="cachee: {}"), encoding="utf-8")

    done = run_launch(config)

    assert done.returncode == 1
    assert done.stdout == ""
    assert all(word in done.stderr for word in ("wrong.yaml", "cachee", "did you mean 'cache'"))
    assert "Traceback" not in done.stderr


def test_a_missing_config_is_refused_by_name(tmp_path: Path) -> None:
    done = run_launch(tmp_path / "nowhere.yaml", "--no-check")

    assert done.returncode == 1
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


class Start:
    """It fails, or the application becomes ready and then a process of it ends."""

    def __init__(self, run: Run, *, ready: bool) -> None:
        self._run, self._ready = run, ready

    def start(self) -> None:
        if not self._ready:
            raise StartError("no engine")
        self._run.pause = self._ended  # type: ignore[method-assign]

    def _ended(self) -> None:
        raise StartError("Ray has ended")


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        (False, "Failed: no engine\n`promptly doctor {config}` looks for what this machine lacks.\n"),
        (True, "Failed: Ray has ended\n"),
    ],
)
@pytest.mark.usefixtures("signal_handlers")
def test_a_failed_start_names_the_command_that_looks_for_the_cause(
    *, ready: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "an app.yaml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config.write_text(CONFIG.format(port=port, more=""), encoding="utf-8")
    options = parse_options(None, [str(config), "--no-check"])

    code = supervise(options, lambda run: cast("Any", Start(run, ready=ready)))

    assert code == 1
    assert said.format(config=f"'{config}'") in capsys.readouterr().out


def test_a_taken_port_is_refused_with_who_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = tmp_path / "app.yaml"
        config.write_text(CONFIG.format(port=port, more=""), encoding="utf-8")

        done = run_launch(config, "--no-check")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"port {port} is taken by" in done.stderr
    assert f"(process {os.getpid()})" in done.stderr


def test_a_start_that_is_stopped_while_ray_starts_says_nothing_of_serve(tmp_path: Path) -> None:
    """Serve's process is there by then, and waits."""
    config = tmp_path / "app.yaml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config.write_text(CONFIG.format(port=port, more=""), encoding="utf-8")
    command = [sys.executable, "-m", "deployments.cli", "serve", str(config), "--no-check"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launch:
        assert launch.stdout is not None
        (logs,) = re.findall(r"\(logs: (.+)\)", launch.stdout.readline())
        assert wait_until((Path(logs) / "ray.log").exists, 30.0)
        launch.send_signal(signal.SIGINT)
        said = launch.stdout.read()
    assert "Stopped in" in said
    assert "serve run ended" in said
    assert "Serve shut down" not in said
    assert "Serve had not" not in said
    assert not Path(logs).exists(), "a start that was asked to stop leaves nothing"


def test_the_first_signal_asks_to_stop_and_the_second_to_hurry(signal_handlers: None) -> None:
    signals = StopSignals()
    assert not signals.requested

    signal.raise_signal(signal.SIGTERM)
    assert (signals.requested, signals.hurried) == (True, False)

    signal.raise_signal(signal.SIGINT)
    assert signals.hurried
    assert signals.received == [signal.SIGTERM, signal.SIGINT]


def test_the_ready_file_appears_whole(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("of an earlier start", encoding="utf-8")

    write_atomically(ready, json.dumps({"url": "http://127.0.0.1:8000"}))

    assert json.loads(ready.read_text(encoding="utf-8")) == {"url": "http://127.0.0.1:8000"}
    assert list(tmp_path.iterdir()) == [ready]


def test_options_have_bounds_by_default(tmp_path: Path) -> None:
    options = parse_options("", [str(tmp_path / "app.yaml")])

    assert (options.timeout_s, options.drain_s) == (READY_TIMEOUT_S, DRAIN_S)
    assert options.check
    assert options.ready_file is None
