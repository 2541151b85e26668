"""A running peer, and the checks that every peer passes before it is measured."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deployments.launcher import ports
from serve_app.request.admin_token import TOKEN_VARIABLE, make_token

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.1


class PeerError(RuntimeError):
    """A peer could not be installed, started or stopped; the message says why."""


@dataclass(frozen=True)
class Endpoint:
    """A running OpenAI-compatible server.

    ``url`` has no path (``http://127.0.0.1:20001``). ``pids`` are the roots of its process trees, which hold
    every process of the serving side and no other.
    """

    name: str
    url: str
    model: str
    pids: tuple[int, ...]


def local_url(port: int) -> str:
    return f"http://{ports.LOOPBACK}:{port}"


def environment(**extra: str) -> dict[str, str]:
    """The environment of a peer: it can import this package and reports no usage."""
    path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH", "")]))
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1"}
    return {**os.environ, **quiet, TOKEN_VARIABLE: admin_token(), "PYTHONPATH": path, **extra}


def admin_token() -> str:
    """The admin token of this run, for every Promptly that it starts."""
    return os.environ.setdefault(TOKEN_VARIABLE, make_token())


def as_admin() -> dict[str, str]:
    return {"authorization": f"Bearer {admin_token()}"}


def wait_for(done: Callable[[], bool], limit_s: float, what: str) -> None:
    """Poll ``done`` until it is true.

    Raises:
        PeerError: it is not true within ``limit_s`` seconds.
    """
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            raise PeerError(f"{what}: not there after {limit_s:.0f} s")
        time.sleep(POLL_S)


def answers_chat(url: str, model: str) -> bool:
    """Whether the server streams a complete answer of one token."""
    question = [{"role": "user", "content": "Ready?"}]
    body = json.dumps({"model": model, "messages": question, "stream": True, "max_tokens": 1})
    try:
        status, answer = exchange(url, "POST", "/v1/chat/completions", body)
    except (OSError, http.client.HTTPException):
        return False
    return b"data: [DONE]" in answer and status == 200


def exchange(
    url: str, method: str, path: str, body: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S
) -> tuple[int, bytes]:
    """The status and the body of one request's answer. Proxies of the environment are ignored.

    Raises:
        OSError, http.client.HTTPException: there was no answer.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
