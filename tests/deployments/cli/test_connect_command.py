"""``promptly connect``: what it prints, and what it asks of the endpoint before."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.main import main
from serve_app.clients import CLIENTS, KEY_VARIABLE, Api

ANSWERS: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "small"}]},
    Api.CHAT.value: {"choices": [{"message": {"content": "Hello."}}]},
    Api.MESSAGES.value: {"content": [{"type": "text", "text": "Hello."}]},
    Api.RESPONSES.value: {"output": [{"content": [{"text": "Hello."}]}]},
}


class Endpoint:
    """An endpoint that answers in every API, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.answers = dict(ANSWERS)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _answer(self, body: Any) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint.asked.append((self.path, headers, body))
                refused = {"error": {"message": "Wrong key."}}
                good = endpoint.status == 200 or self.path == "/v1/models"
                found = json.dumps(endpoint.answers[self.path] if good else refused).encode()
                self.send_response(200 if good else endpoint.status)
                self.send_header("content-length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_is_checked_in_its_own_api_and_told_the_rest(
    name: str, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("k-1\n")
    command = ["connect", name, "--url", f"{endpoint.url}/v1/", "--key-file", str(tmp_path / "key")]
    assert main(command) == 0
    (_, asked_models, _), (path, headers, body) = endpoint.asked
    assert asked_models["authorization"] == "Bearer k-1"
    assert path == CLIENTS[name].api.value
    assert "k-1" in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
    assert body["model"] == "small"
    written = capsys.readouterr().out
    assert "'Hello.'" in written
    assert endpoint.url in written


def test_exports_are_for_a_shell(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "it's")
    command = ["connect", "openai", "--url", endpoint.url, "--model", "a b", "--exports"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"export OPENAI_BASE_URL={endpoint.url}/v1",
        "export OPENAI_API_KEY='it'\"'\"'s'",
    ]
    assert [path for path, *_ in endpoint.asked] == [Api.CHAT.value]


def test_the_key_comes_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "k-env")
    assert main(["connect", "codex", "--url", endpoint.url]) == 0
    assert endpoint.asked[-1][1]["authorization"] == "Bearer k-env"
    assert f"export {KEY_VARIABLE}=k-env" in capsys.readouterr().out


def test_a_key_on_the_command_line_is_refused_with_another_way(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["connect", "codex", "--url", endpoint.url, "--key", "k-visible"])
    said = capsys.readouterr().err
    assert KEY_VARIABLE in said
    assert "--key-file" in said
    assert "k-visible" not in said
    assert endpoint.asked == []


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_file_without_a_key_is_told(
    content: bytes | None, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    assert main(["connect", "codex", "--url", endpoint.url, "--key-file", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
    assert endpoint.asked == []


def test_a_refusal_is_told_with_its_status_and_message(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.status = 401
    assert main(["connect", "claude", "--url", endpoint.url]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == f"{endpoint.url}/v1/messages: 401: Wrong key.\n"


def test_a_port_that_does_not_speak_http_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["connect", "codex", "--url", url]) == 1
        thread.join()
    written = capsys.readouterr().err
    assert written.startswith(f"{url}/v1/models: no answer: ")
    assert "SSH-2.0" in written


def test_an_answer_in_another_form_and_no_model_are_told(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.answers[Api.MESSAGES.value] = {"choices": []}
    assert main(["connect", "anthropic", "--url", endpoint.url]) == 1
    assert "answers in another form" in capsys.readouterr().err
    endpoint.answers["/v1/models"] = {"data": []}
    assert main(["connect", "anthropic", "--url", endpoint.url]) == 1
    assert "--model" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://127.0.0.1:1"])
def test_an_endpoint_that_is_not_there_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "openai", "--url", url]) == 1
    assert url in capsys.readouterr().err


def test_run_starts_the_client_with_its_settings(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    program = tmp_path / "aider"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    main(["connect", "aider", "--url", endpoint.url, "--run", "--yes"])
    (where, words, environment), *_ = started
    assert where == str(program)
    assert words == ["aider", "--model", "openai/small", "--yes"]
    assert environment["OPENAI_API_BASE"] == f"{endpoint.url}/v1"


def test_run_says_what_is_not_installed_or_no_program(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["connect", "claude", "--url", endpoint.url, "--run"]) == 1
    assert "npm install -g @anthropic-ai/claude-code" in capsys.readouterr().err
    assert main(["connect", "langchain", "--url", endpoint.url, "--run"]) == 1
    assert "no program to start" in capsys.readouterr().err
