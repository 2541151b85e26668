"""``promptly apply`` against a dashboard that keeps what it is given."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.main import main

TOKEN = "a-token"
HTTP = {"host": "127.0.0.1", "port": 8000}


def document(*, seqs: int = 8, replicas: int = 1, **args: Any) -> dict[str, Any]:
    engine = {"accelerator": "gpu", "max_num_seqs": seqs}
    model = {"id": "chat", "source": "org/chat", "engine": engine, "replicas": replicas}
    application = {
        "name": "promptly",
        "route_prefix": "/",
        "import_path": "serve_app.app:build",
        "args": {"models": [model], **args},
    }
    return {"http_options": HTTP, "applications": [application]}


class Dashboard(ThreadingHTTPServer):
    """One application; what is put runs at once, or fails."""

    def __init__(self, gpus: float) -> None:
        self.running = document()
        self.put: list[dict[str, Any]] = []
        self.status = "RUNNING"
        self.gpus = gpus
        super().__init__(("127.0.0.1", 0), Handler)

    def answer(self, path: str) -> dict[str, Any]:
        if path.startswith("/api/v0/nodes"):
            total = {"CPU": 16.0, "GPU": self.gpus}
            nodes = [
                {"state": "ALIVE", "resources_total": total},
                {"state": "DEAD", "resources_total": total},
            ]
            return {"data": {"result": {"result": nodes}}}
        (config,) = self.running["applications"]
        application = {"status": self.status, "message": "", "deployments": {}, "deployed_app_config": config}
        return {"http_options": HTTP, "applications": {"promptly": application}}


class Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self._send(self.server.answer(self.path))

    def do_PUT(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.put.append(given)
        self.server.running = given
        self._send({})

    def _send(self, body: dict[str, Any]) -> None:
        authorized = self.headers["authorization"] == f"Bearer {TOKEN}"
        self.send_response(200 if authorized else 401)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dashboard]:
    with Dashboard(gpus=2.0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
        monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "cache"))
        yield server
        server.shutdown()


def config(tmp_path: Path, **changed: Any) -> str:
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump(document(**changed)))
    return str(file)


def test_the_same_config_changes_nothing(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing changes\n"
    assert dashboard.put == []


def test_a_dry_run_tells_and_does_nothing(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=9), "--dry-run"]) == 0
    assert "model chat: replaced one at a time" in capsys.readouterr().out
    assert dashboard.put == []


def test_a_new_config_is_applied_and_taken_back(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dashboard.running
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    assert dashboard.running["applications"] == document(seqs=9)["applications"]
    assert main(["apply", "--back"]) == 0
    assert dashboard.running["applications"] == before["applications"]
    assert main(["apply", "--back"]) == 0  # and forth
    assert dashboard.running["applications"] == document(seqs=9)["applications"]
    assert capsys.readouterr().err == ""


def test_a_config_that_the_cluster_cannot_hold_is_refused_first(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, replicas=5)]) == 1
    assert "models[0].replicas = 5" in capsys.readouterr().err
    assert dashboard.put == []


def test_without_a_spare_gpu_a_roll_is_refused_unless_old_engines_stop_first(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard.gpus = 1.0
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    assert "use --stop-first" in capsys.readouterr().err
    assert dashboard.put == []
    assert main(["apply", config(tmp_path, seqs=9), "--stop-first"]) == 0
    (put,) = dashboard.put
    (application,) = put["applications"]
    assert application["deployments"] == [{"name": "Engine:chat", "max_surge_percent": 0}]


def test_wrong_settings_are_refused_and_nothing_is_sent(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=0)]) == 1
    assert "max_num_seqs" in capsys.readouterr().err
    assert dashboard.put == []


def test_a_failed_deployment_names_the_way_back(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard.status = "DEPLOY_FAILED"
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    assert "back: promptly apply --back" in capsys.readouterr().err


def test_there_is_no_way_back_before_the_first_apply(
    dashboard: Dashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "--back"]) == 1
    assert "has no config to go back to" in capsys.readouterr().err
    assert dashboard.put == []


def test_a_wrong_token_is_one_message(
    dashboard: Dashboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    assert "status 401" in capsys.readouterr().err


def test_no_dashboard_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", "http://127.0.0.1:9")
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    assert "is the application running?" in capsys.readouterr().err
