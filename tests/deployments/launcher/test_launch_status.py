"""Ray's HTTP interface: read, shown, and bounded in time. The server is a real one with scripted answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from deployments.launcher import status
from deployments.launcher.deployment_watch import DeploymentWatch
from deployments.launcher.errors import StartError

TOKEN = "secret"


def details(app_status: str, engine_status: str, running: int, message: str = "") -> dict[str, Any]:
    return {
        "applications": {
            "promptly": {
                "status": app_status,
                "message": "",
                "deployments": {
                    "Engine": {
                        "status": engine_status,
                        "message": message,
                        "target_num_replicas": 1,
                        "replicas": [{"state": "RUNNING"}] * running,
                    }
                },
            }
        }
    }


class Server(ThreadingHTTPServer):
    """Answers GET with ``body`` and DELETE once ``may_answer`` is set; notes what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body: Any = {}
        self.may_answer = threading.Event()
        self.asked: list[tuple[str, str, str | None]] = []

    @property
    def dashboard(self) -> status.Dashboard:
        return status.Dashboard("127.0.0.1", self.server_port, TOKEN)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.answer(json.dumps(self.server.body).encode())

    def do_DELETE(self) -> None:
        self.server.may_answer.wait(timeout=10)
        self.answer(b"")

    def answer(self, body: bytes) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join(timeout=10)


def never() -> bool:
    return False


def test_the_deployments_of_an_application_are_read(server: Server) -> None:
    server.body = details("DEPLOYING", "UPDATING", running=0)

    (application,) = server.dashboard.applications()

    assert not application.has_failed
    assert [str(deployment) for deployment in application.deployments] == [
        "Engine: starting (0 of 1 replicas running)"
    ]
    assert server.asked == [("GET", status.APPLICATIONS, f"Bearer {TOKEN}")]


def test_a_server_that_is_not_there_yet_has_no_applications() -> None:
    nobody = status.Dashboard("127.0.0.1", 1, TOKEN)

    assert nobody.applications() == ()
    assert not nobody.is_up()
    assert not status.answers("http://127.0.0.1:1/ready")
    assert not nobody.shut_serve_down(1.0, never)


def test_readiness_is_asked_directly_even_where_a_proxy_is_set(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert status.answers(f"http://127.0.0.1:{server.server_port}/ready")
    assert server.asked == [("GET", "/ready", None)]


def test_serve_is_shut_down_by_the_request_that_its_own_command_sends(server: Server) -> None:
    server.may_answer.set()

    assert server.dashboard.shut_serve_down(10.0, never)
    assert server.asked == [("DELETE", status.APPLICATIONS, f"Bearer {TOKEN}")]


def test_a_shutdown_that_takes_too_long_is_cut_short(server: Server) -> None:
    started = time.monotonic()

    assert not server.dashboard.shut_serve_down(0.2, never)
    assert time.monotonic() - started < 2.0


def test_a_second_ctrl_c_ends_the_wait_for_the_shutdown(server: Server) -> None:
    started = time.monotonic()

    assert not server.dashboard.shut_serve_down(60.0, lambda: True)
    assert time.monotonic() - started < 2.0


def test_a_failure_names_the_deployment_and_its_message_without_colours() -> None:
    (application,) = status.parse_applications(
        details("DEPLOY_FAILED", "DEPLOY_FAILED", running=0, message="\x1b[36mTask\x1b[39m\nValueError: no")
    )

    assert application.has_failed
    assert application.failure() == "promptly: DEPLOY_FAILED: \nEngine: Task\nValueError: no"


def test_the_gist_of_a_message_is_what_happened() -> None:
    def gist(message: str) -> str:
        return status.Deployment("Engine", "UPDATING", 0, 1, message).gist

    assert gist("") == ""
    assert (
        gist("Failed to start 1 times.\n  File x\nValueError: no such model\n") == "ValueError: no such model"
    )
    assert gist("  raise x\nray.EngineStartError: Engine(pid=1): EngineStartError: too little memory\n") == (
        "too little memory"
    )
    assert gist("More than 30 s to start.\nThis may be a slow __init__.") == "More than 30 s to start."


def test_the_watch_says_each_change_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    watch = DeploymentWatch(server.dashboard)
    for running, message in ((0, ""), (0, ""), (0, "trace\nOSError: first try"), (1, "")):
        server.body = details("DEPLOYING", "HEALTHY" if running else "UPDATING", running, message)
        watch.look(at_once=True)

    said = capsys.readouterr().out

    assert said.count("Engine: starting (0 of 1") == 1
    assert said.count("OSError: first try") == 1
    assert said.count("Engine: healthy (1 of 1") == 1


def test_the_watch_asks_at_most_once_a_second(server: Server) -> None:
    watch = DeploymentWatch(server.dashboard)
    for _ in range(20):
        watch.look()

    assert len(server.asked) == 1


def test_the_watch_ends_the_start_when_the_application_has_failed(server: Server) -> None:
    server.body = details("DEPLOY_FAILED", "DEPLOY_FAILED", running=0, message="ValueError: no such model")

    with pytest.raises(StartError, match="no such model"):
        DeploymentWatch(server.dashboard).look()


def test_the_watch_ends_the_start_at_the_first_engine_whose_settings_are_refused(server: Server) -> None:
    message = (
        "ray.RefusedEngineStartError: Engine(pid=1): RefusedEngineStartError: model 'm': no such argument\n"
    )
    server.body = details("DEPLOYING", "UPDATING", running=0, message=message)

    with pytest.raises(StartError, match=r"Engine: model 'm': no such argument$"):
        DeploymentWatch(server.dashboard).look()


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ({"status": "ok", "cache": "failing"}, True),
        ({"status": "ok", "cache": "ok"}, False),
        ({"status": "ok"}, False),
    ],
)
def test_a_failing_cache_is_read_from_the_health(
    server: Server, health: dict[str, str], expected: bool
) -> None:
    server.body = health
    assert status.cache_fails(f"http://127.0.0.1:{server.server_port}/health") is expected
    assert not status.cache_fails("http://127.0.0.1:1/health")
