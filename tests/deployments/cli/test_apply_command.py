"""``promptly apply`` against a dashboard that keeps what it is given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.main import main
from deployments.launcher.plan import GIVEN_PORT

TOKEN = "a-token"
ROOT = Path(__file__).parents[3]
HTTP = {"host": "127.0.0.1", "port": 8000}


def document(
    *, seqs: int = 8, replicas: int = 1, name: str = "chat", options: Any = None, **args: Any
) -> dict[str, Any]:
    engine = {"accelerator": "gpu", "max_num_seqs": seqs, **({"options": options} if options else {})}
    model = {"id": name, "source": "org/chat", "engine": engine, "replicas": replicas}
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
        self.refuses = False
        self.interrupts = False
        self.has_file = True
        self.others: dict[str, Any] = {}
        self.overtakes: dict[str, Any] | None = None
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
        files = {"promptly": application} if self.has_file else {}
        return {"http_options": HTTP, "applications": files | self.others}


class Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self._send(self.server.answer(self.path))

    def do_PUT(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.put.append(given)
        if not self.server.refuses:
            self.server.running = self.server.overtakes or given
        self._send({}, 500 if self.server.refuses else 200)
        if self.server.interrupts:
            os.kill(os.getpid(), signal.SIGINT)

    def _send(self, body: dict[str, Any], status: int = 200) -> None:
        authorized = self.headers["authorization"] == f"Bearer {TOKEN}"
        self.send_response(status if authorized else 401)
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


def test_a_port_that_the_start_was_given_is_no_change(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump({**document(), "http_options": {**HTTP, "port": 9000}}))
    monkeypatch.setenv(GIVEN_PORT, "8000")
    assert main(["apply", str(file)]) == 0
    assert capsys.readouterr().out == "nothing changes\n"
    monkeypatch.setenv(GIVEN_PORT, "7000")  # of another start
    assert main(["apply", str(file)]) == 0
    assert "http_options: " in capsys.readouterr().out


def test_a_dry_run_tells_and_does_nothing(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=9), "--dry-run"]) == 0
    assert "model chat: replaced one at a time" in capsys.readouterr().out
    assert dashboard.put == []


def test_a_dry_run_tells_what_is_needed_beside_what_the_nodes_that_live_have(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = {"replicas": 2, "num_cpus": 0.5}
    small = {"gateway": gateway, "responses": {"enabled": False}}
    assert main(["apply", config(tmp_path, seqs=9, **small), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "of what the cluster has: 1 of 2 GPU, 2 of 16 CPU\n" in told
    assert "model chat: until an old engine stops, 1 GPU, 1 CPU more\n" in told
    assert main(["apply", config(tmp_path, seqs=9, **small), "--dry-run", "--stop-first"]) == 0
    assert "until an old engine stops" not in capsys.readouterr().out
    assert main(["apply", config(tmp_path, seqs=9, replicas=5), "--dry-run"]) == 1
    assert "of what the cluster has" not in capsys.readouterr().out
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
    capsys.readouterr()
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    assert capsys.readouterr().out == "nothing changes\n"


def test_engines_that_stop_first_are_named_as_serve_names_them(dashboard: Dashboard, tmp_path: Path) -> None:
    dashboard.running = document(name="org/chat-0.5b")
    assert main(["apply", config(tmp_path, name="org/chat-0.5b", seqs=9), "--stop-first"]) == 0
    (application,) = dashboard.put[0]["applications"]
    assert application["deployments"] == [{"name": "Engine:org--chat-0_5b", "max_surge_percent": 0}]


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


def test_a_raw_option_that_vllm_does_not_know_is_refused_and_nothing_is_sent(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    """In a process of its own: the command sets how much vLLM logs."""
    file = config(tmp_path, options={"max_logprob": 3})
    command = [sys.executable, "-m", "deployments.cli", "apply", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{file}: model 'chat': engine.options.max_logprob = 3: vLLM has no such")
    assert dashboard.put == []


def test_another_name_is_refused_since_the_application_that_runs_would_be_deleted(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = document(seqs=9)
    changed["applications"][0]["name"] = "other"
    file = tmp_path / "other.yaml"
    for text in (yaml.safe_dump(changed), yaml.safe_dump(changed).replace("name: other", "name: ''")):
        file.write_text(text)
        assert main(["apply", str(file)]) == 1
        assert "expected 'promptly'" in capsys.readouterr().err
    assert dashboard.put == []


@pytest.mark.parametrize(
    "beside",
    [{"route_prefix": "/v9"}, {"runtime_env": {"env_vars": {"A": "b"}}}, {"import_path": "mine:build"}],
)
def test_what_changes_beside_the_settings_is_told_and_applied(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str], beside: dict[str, Any]
) -> None:
    changed = document()
    changed["applications"][0].update(beside)
    file = tmp_path / "beside.yaml"
    file.write_text(yaml.safe_dump(changed))
    assert main(["apply", str(file)]) == 0
    (key,) = beside
    assert f"applications[].{key}: changed" in capsys.readouterr().out
    assert dashboard.running["applications"] == changed["applications"]


def test_a_refused_config_costs_no_way_back(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = dashboard.running
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(document()).replace("name: promptly", "name: promptly\n  deployments: 3"))
    assert main(["apply", str(file)]) == 1
    assert "applications[].deployments: expected" in capsys.readouterr().err
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    dashboard.refuses = True
    assert main(["apply", config(tmp_path, seqs=10)]) == 1
    assert main(["apply", "--back"]) == 1
    assert capsys.readouterr().err.count("status 500") == 2
    dashboard.refuses = False
    assert main(["apply", "--back"]) == 0
    assert dashboard.running["applications"] == first["applications"]


@pytest.mark.parametrize("status", ["DEPLOY_FAILED", "DEPLOYING", "UNHEALTHY"])
def test_the_way_back_leads_past_configs_that_never_ran(
    dashboard: Dashboard, tmp_path: Path, status: str
) -> None:
    first = dashboard.running
    for seqs in (9, 10):  # the first attempt, and the next one
        assert main(["apply", config(tmp_path, seqs=seqs), "--timeout", "0"]) == 1
        dashboard.status = status
    assert main(["apply", "--back", "--timeout", "0"]) == 1
    assert dashboard.running["applications"] == first["applications"]


def test_a_refused_config_does_not_change_what_a_plan_compares_with(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=9), "--timeout", "0"]) == 1
    dashboard.status, dashboard.refuses = "DEPLOY_FAILED", True
    assert main(["apply", config(tmp_path, seqs=10)]) == 1
    capsys.readouterr()
    assert main(["apply", config(tmp_path, seqs=10), "--dry-run"]) == 0
    assert "compared with the one that was in force before" in capsys.readouterr().out


def applied(dashboard: Dashboard) -> Any:
    return dashboard.running["applications"]


def apply_one_that_fails_after_one_that_runs(dashboard: Dashboard, tmp_path: Path) -> None:
    """With 10 and 9 sequences."""
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    assert main(["apply", config(tmp_path, seqs=10), "--timeout", "0"]) == 1
    dashboard.status = "DEPLOY_FAILED"


def test_after_an_apply_that_failed_back_leads_to_what_was_in_force_however_often(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    first = applied(dashboard)
    apply_one_that_fails_after_one_that_runs(dashboard, tmp_path)
    for _ in range(2):  # the second time it is still on its way
        assert main(["apply", "--back", "--timeout", "0"]) == 1
        assert applied(dashboard) == document(seqs=9)["applications"]
        dashboard.status = "DEPLOYING"
    dashboard.status = "RUNNING"
    assert main(["apply", "--back"]) == 0
    assert applied(dashboard) == first
    assert main(["apply", "--back"]) == 0
    assert applied(dashboard) == document(seqs=9)["applications"]


def test_the_file_of_the_config_in_force_is_applied_over_one_that_failed_and_costs_no_way_back(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    first = applied(dashboard)
    apply_one_that_fails_after_one_that_runs(dashboard, tmp_path)
    assert main(["apply", config(tmp_path, seqs=9), "--timeout", "0"]) == 1
    dashboard.status = "RUNNING"
    assert main(["apply", "--back"]) == 0
    assert applied(dashboard) == first


def test_back_leads_past_the_config_in_force_while_that_one_starts_anew(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    """As after the death of Ray's head; its file may be applied once more meanwhile."""
    first = applied(dashboard)
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    dashboard.status = "DEPLOYING"
    assert main(["apply", config(tmp_path, seqs=9), "--timeout", "0"]) == 1
    assert len(dashboard.put) == 2
    assert main(["apply", "--back", "--timeout", "0"]) == 1
    assert applied(dashboard) == first


@pytest.mark.parametrize("timeout", ["0", "60"])
def test_the_way_back_does_not_stop_engines_first_because_the_way_there_did(
    dashboard: Dashboard, tmp_path: Path, timeout: str
) -> None:
    main(["apply", config(tmp_path, seqs=9), "--stop-first", "--timeout", timeout])
    assert applied(dashboard)[0]["deployments"] == [{"name": "Engine:chat", "max_surge_percent": 0}]
    assert main(["apply", config(tmp_path, seqs=10)]) == 0
    assert main(["apply", "--back"]) == 0
    assert applied(dashboard) == document(seqs=9)["applications"]


def test_a_plan_compares_with_what_runs_and_not_with_what_failed(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=9), "--timeout", "0"]) == 1
    dashboard.status = "DEPLOY_FAILED"
    capsys.readouterr()
    assert main(["apply", config(tmp_path, limits={"max_body_bytes": 2_000}), "--dry-run"]) == 0
    note, gateways, model, *_ = capsys.readouterr().out.splitlines()
    assert "has not run (DEPLOY_FAILED); compared with the one that was in force before" in note
    assert gateways.startswith("gateways: replaced")
    assert gateways.endswith("(limits.max_body_bytes)")
    assert model.startswith("model chat: back, where the config that never ran has replaced it already")


def test_a_plan_says_that_it_compares_with_a_config_that_failed_where_no_other_is_known(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    dashboard.running, dashboard.status = document(seqs=11), "DEPLOY_FAILED"  # applied elsewhere
    capsys.readouterr()
    assert main(["apply", config(tmp_path, seqs=9), "--dry-run"]) == 0
    note, model, *_ = capsys.readouterr().out.splitlines()
    assert note.endswith("has not run (DEPLOY_FAILED); compared with that one, as no other is known here:")
    assert model.startswith("model chat: replaced one at a time")


def test_an_engine_that_the_failed_config_may_have_replaced_stops_first_on_the_way_back(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    dashboard.gpus = 1.0
    assert main(["apply", config(tmp_path, seqs=9), "--stop-first", "--timeout", "0"]) == 1
    dashboard.status = "DEPLOY_FAILED"
    assert main(["apply", "--back", "--timeout", "0"]) == 1
    assert len(dashboard.put) == 1
    assert main(["apply", "--back", "--stop-first", "--timeout", "0"]) == 1
    (application,) = dashboard.put[1]["applications"]
    assert application["deployments"] == [{"name": "Engine:chat", "max_surge_percent": 0}]


def test_the_file_of_the_first_release_is_a_way_back(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "applied.json").write_text(json.dumps(document(seqs=12)))
    assert main(["apply", "--back"]) == 0
    assert applied(dashboard) == document(seqs=12)["applications"]


@pytest.mark.parametrize("kept", ["[]", "3", "{}", '{"applications": 3}', '{"applications": [[]]}'])
def test_a_file_that_is_no_config_is_no_way_back(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: str
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "applied.json").write_text(kept)
    assert main(["apply", "--back"]) == 1
    assert "has no config to go back to" in capsys.readouterr().err


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """It interrupts, also where the process that runs the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_apply_leaves_the_way_back(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = dashboard.running
    dashboard.interrupts = True
    assert main(["apply", config(tmp_path, seqs=9)]) == 130
    assert "back: promptly apply --back" in capsys.readouterr().err
    dashboard.interrupts = False
    assert main(["apply", "--back"]) == 0
    assert dashboard.running["applications"] == first["applications"]


def test_a_config_that_another_apply_replaced_is_not_said_to_be_done(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard.overtakes = document(seqs=99)
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    said = capsys.readouterr()
    assert "another config was applied meanwhile" in said.err
    assert "done in" not in said.out


def test_there_is_no_way_back_before_the_first_apply(
    dashboard: Dashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "--back"]) == 1
    assert "has no config to go back to" in capsys.readouterr().err
    assert dashboard.put == []


FROM_PYTHON = {"status": "RUNNING", "message": "", "deployments": {}, "source": "imperative"}
DELETED = {"status": "DELETING", "message": "", "deployments": {}, "source": "declarative"}


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"mine": FROM_PYTHON}, "'mine' runs there, and it was started from Python (`serve.run`)"),
        ({"old": DELETED}, "'old' is DELETING"),
        ({}, "no application runs there: start one with `promptly serve FILE`"),
    ],
)
def test_without_an_application_of_a_file_it_is_said_which_one_runs(
    dashboard: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str], others: Any, said: str
) -> None:
    dashboard.has_file, dashboard.others = False, others
    assert main(["apply", config(tmp_path, seqs=9)]) == 1
    assert said in capsys.readouterr().err
    assert dashboard.put == []


def test_an_application_of_a_file_is_changed_beside_one_that_was_started_from_python(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    """Serve leaves the other one as it is, also where it has failed."""
    dashboard.others = {"mine": {**FROM_PYTHON, "status": "DEPLOY_FAILED"}}
    assert main(["apply", config(tmp_path, seqs=9)]) == 0
    assert applied(dashboard) == document(seqs=9)["applications"]


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
    for wrong in ("http://127.0.0.1:abc", "http://[::1"):
        monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", wrong)
        assert main(["apply", config(tmp_path, seqs=9)]) == 1
        assert "RAY_DASHBOARD_ADDRESS = " in capsys.readouterr().err
