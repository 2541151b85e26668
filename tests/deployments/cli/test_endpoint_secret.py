"""Where commands read the secret that they send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deployments.cli.endpoint import ADMIN_KEY, CannotConnect, known_secret, secret
from deployments.cli.main import main
from serve_app.request.admin_token import FILE_VARIABLE, TOKEN_VARIABLE


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ADMIN_KEY, TOKEN_VARIABLE, FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_a_file_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, given = tmp_path / "named", tmp_path / "given"
    named.write_text("of the variable's file\n")
    given.write_text("of the file\n")
    assert known_secret() is None
    monkeypatch.setenv(FILE_VARIABLE, str(named))
    assert secret(None) == "of the variable's file"
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    assert secret(None) == "token"
    monkeypatch.setenv(ADMIN_KEY, " key\n")
    assert secret(None) == "key"
    assert secret(str(given)) == "of the file"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match=f"{ADMIN_KEY}.*--key-file"):
        secret(None)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(CannotConnect, match=ADMIN_KEY):
        secret(str(tmp_path / "empty"))
    with pytest.raises(CannotConnect, match="nowhere"):
        secret(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("command", [["keys", "list"], ["limits", "list"], ["usage"]])
def test_no_command_takes_a_secret_on_its_command_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--key-secret", "pk-of-somebody"])
    said = capsys.readouterr().err
    assert "--key-file" in said
    assert "pk-of-somebody" not in said


@contextmanager
def server(redirects_to: str | None) -> Iterator[tuple[str, list[str]]]:
    """Its URL without host, and the secrets that it was sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        server: HTTPServer

        def do_GET(self) -> None:
            seen.append(self.headers["authorization"])
            goes_on = redirects_to is not None and not self.path.endswith("/again")
            self.send_response(302 if goes_on else 200)
            if goes_on:
                self.send_header("location", f"{redirects_to or ''}:{self.server.server_port}/again")
            self.end_headers()
            self.wfile.write(b'{"keys": [], "next": null}')

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f":{listening.server_port}", seen
        listening.shutdown()


@pytest.mark.parametrize(("to", "requests"), [("http://127.0.0.1", 2), ("http://localhost", 1)])
def test_a_secret_follows_no_redirect_to_another_host(
    monkeypatch: pytest.MonkeyPatch, to: str, requests: int
) -> None:
    monkeypatch.setenv(ADMIN_KEY, "pk-of-somebody")
    with server(to) as (port, seen):
        status = main(["keys", "list", "--endpoint", f"http://127.0.0.1{port}"])
    assert (status, len(seen)) == (0 if requests == 2 else 1, requests)
