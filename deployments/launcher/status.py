"""Ray's and Serve's reports on a start, over HTTP: importing Ray would cost the supervisor seconds."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 2.0  # also how long a Ctrl-C may wait for an answer
VERSION = "/api/version"
APPLICATIONS = "/api/serve/applications/"
FAILED = frozenset({"DEPLOY_FAILED", "UNHEALTHY"})
ENGINE_START_ERROR = "EngineStartError"  # its text is written for users; the traceback before it is not
REFUSED = "RefusedEngineStartError"  # its settings are wrong, and Serve would try three times
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # Ray colours task names in tracebacks


@dataclass(frozen=True)
class Deployment:
    """One deployment of an application, as Serve's controller sees it."""

    name: str
    status: str
    running: int
    wanted: int
    message: str

    def __str__(self) -> str:
        word = "starting" if self.status == "UPDATING" else self.status.lower().replace("_", " ")
        return f"{self.name}: {word} ({self.running} of {self.wanted} replicas running)"

    @property
    def gist(self) -> str:
        """The line of the message that names the cause: the last line of a traceback."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        if not lines:
            return ""
        return lines[-1].rpartition(f"{ENGINE_START_ERROR}: ")[2] if "Error" in self.message else lines[0]

    @property
    def is_refused(self) -> bool:
        """Whether no further try can succeed."""
        return REFUSED in self.message

    @property
    def failure(self) -> str:
        """The whole message, or only the line in which an engine says why it does not start."""
        return self.gist if ENGINE_START_ERROR in self.message else self.message


@dataclass(frozen=True)
class Application:
    name: str
    status: str
    message: str
    deployments: tuple[Deployment, ...]

    @property
    def has_failed(self) -> bool:
        return self.status in FAILED

    def failure(self) -> str:
        """Serve's message about the application, and about each failed deployment."""
        failed = [each for each in self.deployments if each.status in FAILED or each.is_refused]
        details = [f"{deployment.name}: {deployment.failure}" for deployment in failed]
        text = "\n".join([f"{self.name}: {self.status}: {self.message}", *details])
        return COLOURS.sub("", text).rstrip()


def parse_applications(details: Mapping[str, Any]) -> tuple[Application, ...]:
    """The body of ``GET /api/serve/applications/``."""
    return tuple(
        Application(name, app["status"], app.get("message") or "", tuple(_deployments(app)))
        for name, app in (details.get("applications") or {}).items()
    )


def _deployments(app: Mapping[str, Any]) -> Iterator[Deployment]:
    for name, deployment in (app.get("deployments") or {}).items():
        replicas = deployment.get("replicas") or []
        yield Deployment(
            name=name,
            status=deployment["status"],
            running=sum(replica.get("state") == "RUNNING" for replica in replicas),
            wanted=deployment.get("target_num_replicas") or 0,
            message=deployment.get("message") or "",
        )


def answers(url: str) -> bool:
    """Whether ``GET url`` gives 200 now. Proxies of the user's environment are ignored."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=REQUEST_TIMEOUT_S)
    return _is_answered(connection, parts.path)


def cache_fails(url: str) -> bool:
    """Whether the ``/health`` at ``url`` names a failing cache; false where it cannot be asked (TLS)."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=REQUEST_TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        return bool(json.load(connection.getresponse()).get("cache") == "failing")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def answers_at(path: Path, target: str) -> bool:
    """The same over a unix socket: the proxy's socket for its owner, where TCP needs TLS."""
    return path.exists() and _is_answered(_UnixConnection(path), target)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(REQUEST_TIMEOUT_S)
        self.sock.connect(str(self._path))


def _is_answered(connection: http.client.HTTPConnection, target: str) -> bool:
    try:
        connection.request("GET", target)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@dataclass(frozen=True)
class Dashboard:
    """The HTTP interface of this start's Ray dashboard."""

    host: str
    port: int
    token: str

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def is_up(self) -> bool:
        return self._get(VERSION) is not None

    def applications(self) -> tuple[Application, ...]:
        """The applications of this start; empty while Serve does not answer."""
        return parse_applications(self._get(APPLICATIONS) or {})

    def shut_serve_down(self, limit_s: float, hurried: Callable[[], bool]) -> bool:
        """Shut Serve down, like ``serve shutdown -y``; whether it was done within the limit."""
        connection = self._connect()
        try:
            connection.request("DELETE", APPLICATIONS, headers=self._headers)
            return _response_comes(connection, limit_s, hurried) and connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _get(self, path: str) -> Any:
        """The JSON at ``path``; ``None`` without an answer."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            return json.load(response) if response.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=REQUEST_TIMEOUT_S)


def _response_comes(
    connection: http.client.HTTPConnection, limit_s: float, hurried: Callable[[], bool]
) -> bool:
    """Wait for the first byte in short steps, so that a second Ctrl-C ends the wait."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not hurried():
        if select.select([connection.sock], [], [], 0.1)[0]:
            return True
    return False
