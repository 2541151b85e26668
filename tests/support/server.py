"""The whole application as a process of its own, started in each way that users start it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deployments.launcher.ports import free_port
from serve_app.request.admin_token import TOKEN_VARIABLE
from support.graph import ADMIN_TOKEN, AS_ADMIN

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 90.0
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Server:
    """A running application."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    config: Path = Path()
    """That it was started with."""
    dashboard: Mapping[str, str] = field(default_factory=dict)
    """Variables with which `promptly apply` finds it."""


def local_config(folder: Path, store: Path, *, warm_up: bool = True, **changes: Any) -> tuple[Path, int]:
    """config/local.yaml on a free port, with a cache store of its own. Without ``warm_up`` its engine is
    ready sooner, by ten seconds and more."""
    document = yaml.safe_load((ROOT / "config" / "local.yaml").read_text())
    port = free_port()
    document["http_options"]["port"] = port
    args = document["applications"][0]["args"]
    args["cache"]["path"] = str(store)
    args["models"][0]["engine"]["warm_up"] = warm_up
    args["responses"] = {"path": str(store.with_name(f"{store.name}-responses"))}
    args.update(changes)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path, port


TRIED = "tried"
"""The prompt whose requests are in experiments; all others are in none."""


def experiments_in(folder: Path) -> dict[str, Any]:
    """Settings of a split and of a shadow, for requests that name ``TRIED``."""
    prompt = folder / "prompts" / TRIED
    prompt.mkdir(parents=True)
    (prompt / "1.md").write_text("You help to test experiments.\n", encoding="utf-8")
    labels = f"labels: {{{TRIED}: {{production: '1'}}}}\n"
    (prompt.parent / "labels.yaml").write_text(labels, encoding="utf-8")
    short, shorter = ({"settings": {"max_tokens": most}} for most in (8, 4))
    split = {
        "name": "split",
        "prompt": TRIED,
        "unit": "request",
        "arms": [{"name": "short", "percent": 50, **short}],
    }
    shadow = {"name": "shadow", "kind": "shadow", "prompt": TRIED, "shadow": {"max_load": 0.9}}
    shadow["arms"] = [{"name": "shorter", "percent": 100, **shorter}]
    return {"prompts": {"folder": str(prompt.parent)}, "experiments": [split, shadow]}


def environment(**extra: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
        TOKEN_VARIABLE: ADMIN_TOKEN,
        **extra,
    }


@contextmanager
def launched(
    folder: Path, store: Path, *, variables: Mapping[str, str] | None = None, **changes: Any
) -> Iterator[Server]:
    """As `make serve` does: HAProxy in front, Ray and all under one supervisor. ``variables`` are added to
    the environment."""
    config, port = local_config(folder, store, **changes)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "deployments.cli", "serve", str(config), "--ready-file", str(ready)]
    with _process(command, folder / "launch.log", environment(**(variables or {}))) as server:
        _wait(server, ready.exists)
        yield Server(f"http://127.0.0.1:{port}", server.process, server.log)


@contextmanager
def serve_run(folder: Path, store: Path) -> Iterator[Server]:
    """A bare `serve run`: Ray's Python proxy."""
    config, port = local_config(folder, store, warm_up=False)
    url = f"http://127.0.0.1:{port}"
    command = [str(BIN / "serve"), "run", str(config)]
    with _process(command, folder / "serve-run.log", environment(RAY_ADDRESS="local")) as server:
        _wait(server, lambda: is_ready(url))
        yield Server(url, server.process, server.log)


@contextmanager
def serve_deploy(folder: Path, store: Path) -> Iterator[Server]:
    """`serve deploy` onto a cluster that runs already. Ray clusters ask for a token by default."""
    config, port = local_config(folder, store, warm_up=False)
    url = f"http://127.0.0.1:{port}"
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    env = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    dashboard = free_port()
    address = f"http://127.0.0.1:{dashboard}"
    head = ["start", "--head", "--block", "--num-cpus=8", "--disable-usage-stats", f"--port={free_port()}"]
    head += [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={free_port()}"]
    head += [f"--ray-client-server-port={free_port()}"]
    with _process([str(BIN / "ray"), *head], folder / "ray.log", env) as server:
        _wait(server, lambda: _answers(f"{address}/api/version"))
        deploy = [str(BIN / "serve"), "deploy", "-a", address, str(config)]
        done = subprocess.run(deploy, env=env, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        _wait(server, lambda: is_ready(url))
        named = {"RAY_DASHBOARD_ADDRESS": address, "RAY_AUTH_TOKEN_PATH": str(token)}
        yield Server(url, server.process, server.log, config, named)


class ServerSlot:
    """At most one server at a time: two would fight for the cores and for the store."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.current: Server | None = None

    def start(self, server: AbstractContextManager[Server]) -> Server:
        self.stop()
        self.current = self._stack.enter_context(server)
        return self.current

    def stop(self) -> int:
        """Ctrl-C; returns the exit status."""
        status = 0 if self.current is None else stop(self.current.process)
        self.current = None
        self._stack.close()
        return status


@contextmanager
def _process(command: list[str], log: Path, env: dict[str, str]) -> Iterator[Server]:
    """The process, ended with SIGINT as Ctrl-C would, and killed if it does not end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=heed_sigint,  # noqa: PLW1509  # one call, no locks
        )
    try:
        yield Server("", process, log)
    finally:
        stop(process)


def heed_sigint() -> None:
    """A shell's background job ignores SIGINT, and so would everything that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stop(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def is_ready(url: str) -> bool:
    return _answers(f"{url}/ready")


def get_json(url: str) -> Any:
    """As the administrator."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=AS_ADMIN), timeout=10) as response:
        return json.load(response)


def _answers(url: str) -> bool:
    """Whether something answers there; any refusal but "not ready" counts too."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except OSError:
        return False


def _wait(server: Server, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not check():
        tail = server.log.read_text(errors="replace")[-3000:]
        assert server.process.poll() is None, f"ended with {server.process.returncode}:\n{tail}"
        assert time.monotonic() < deadline, f"not ready in {READY_TIMEOUT_S} s:\n{tail}"
        time.sleep(0.25)
