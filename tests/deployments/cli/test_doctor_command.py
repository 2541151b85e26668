"""`promptly doctor` on this machine: what it prints, and its exit status."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deployments.cli.doctor import lines, sound
from deployments.cli.machine_facts import ask_hub, broken, existing, find_haproxy, is_optimized
from deployments.cli.main import main
from serve_app.machine import Finding, Verdict

ROOT = Path(__file__).parents[3]


class Hub(BaseHTTPRequestHandler):
    """Answers with the status in the path."""

    def do_HEAD(self) -> None:
        self.send_response(int(self.path.strip("/")))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def findings(shown: str) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in json.loads(shown)["findings"]}


def test_a_taken_port_is_missing_and_the_status_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        status = main(["doctor", "--json", "--offline", "--port", str(port)])
    shown = capsys.readouterr().out
    assert status == 1
    assert json.loads(shown)["ok"] is False
    assert findings(shown)["port"]["verdict"] == "missing"
    assert str(port) in findings(shown)["port"]["found"]
    assert findings(shown)["packages"]["verdict"] == "ok"


def test_a_config_says_what_is_needed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    text = (ROOT / "config" / "gpu-8b.yaml").read_text(encoding="utf-8")
    config.write_text(text.replace("source: Qwen/Qwen3-8B", "source: nobody/nothing"), encoding="utf-8")
    assert main(["doctor", str(config), "--json", "--offline"]) == 1
    said = findings(capsys.readouterr().out)
    assert said["hub"]["verdict"] == "missing"
    assert "nobody/nothing" in said["hub"]["found"]


def test_a_model_in_the_hub_clients_cache_is_on_this_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "app.yaml"
    text = (ROOT / "config" / "gpu-8b.yaml").read_text(encoding="utf-8")
    config.write_text(text.replace("source: Qwen/Qwen3-8B", "source: nobody/nothing"), encoding="utf-8")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--nobody--nothing" / "snapshots" / "abc").mkdir(parents=True)
    main(["doctor", str(config), "--json", "--offline"])
    assert "nobody/nothing" not in findings(capsys.readouterr().out)["hub"]["found"]


def test_a_wrong_config_is_refused_by_its_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    text = (ROOT / "config" / "local.yaml").read_text(encoding="utf-8")
    config.write_text(text.replace("dtype: bfloat16", "dtyp: bfloat16"), encoding="utf-8")
    assert main(["doctor", str(config), "--offline"]) == 1
    assert "did you mean 'dtype'" in capsys.readouterr().err


def test_each_finding_is_a_line_and_its_mend_another() -> None:
    shown = lines(
        [
            Finding("port", Verdict.MISSING, "8000 is taken", "end it"),
            Finding("disk", Verdict.OK, "9 GiB free"),
        ]
    )
    assert [line.split() for line in shown] == [
        ["MISSING", "port", "8000", "is", "taken"],
        ["→", "end", "it"],
        ["ok", "disk", "9", "GiB", "free"],
    ]


def test_warnings_do_not_stop_a_start() -> None:
    assert sound([Finding("memory", Verdict.WARNING, "2 GiB", "more")])


@pytest.mark.parametrize(("path", "said"), [("200", "answers"), ("404", "answers"), ("503", "silent")])
def test_the_hub_answers_if_it_says_anything(hub: str, path: str, said: str) -> None:
    assert ask_hub(f"{hub}/{path}", {}, offline=False) == said


def test_the_hub_is_not_asked_when_it_is_off(hub: str) -> None:
    assert ask_hub(f"{hub}/200", {}, offline=True) == "off"
    assert ask_hub(f"{hub}/200", {"HF_HUB_OFFLINE": "1"}, offline=False) == "off"


def test_a_hub_that_is_no_web_address_is_silent() -> None:
    assert ask_hub("file:///etc/passwd", {}, offline=False) == "silent"


def test_the_haproxy_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert find_haproxy({"RAY_SERVE_HAPROXY_BINARY_PATH": str(tmp_path / "haproxy")}) is None
    assert find_haproxy({"RAY_SERVE_HAPROXY_BINARY_PATH": "/bin/sh"}) == "/bin/sh"
    assert find_haproxy({}) is not None


def test_a_package_beside_a_cpu_build_of_torch_is_tried() -> None:
    there = {"json": "1.0", "no_such_package": "1.0", "neither": "1.0+cpu"}
    assert broken("2.13.0+cpu", there) == ("no_such_package",)
    assert broken("2.13.0", there) == ()


def test_the_room_of_a_folder_that_is_not_there_yet_is_its_parent_s(tmp_path: Path) -> None:
    assert existing(tmp_path / "a" / "b") == tmp_path


@pytest.mark.parametrize(
    ("prefix", "arguments", "is_fast"),
    [
        ("/usr", "'--prefix=/usr' '--enable-shared'", True),
        ("/root/.pyenv/versions/3.11.7", "'--enable-shared'", False),
        ("/root/.pyenv/versions/3.11.7", "'--enable-shared' '--enable-optimizations'", True),
        ("/usr/local", "'--enable-optimizations' '--with-lto'", True),
        ("/opt/python", None, True),
    ],
)
def test_a_python_built_without_optimizations_is_known(
    prefix: str, arguments: str | None, is_fast: bool
) -> None:
    assert is_optimized(prefix, arguments) is is_fast
