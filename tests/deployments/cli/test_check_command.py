"""``promptly check`` refuses before anything starts what a start would fail on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.accounts.store import schema as accounts_schema
from deployments.cli.check import check
from deployments.cli.main import main
from deployments.feedback.store import schema as feedback_schema
from deployments.responses.store import schema as responses_schema
from serve_app.errors import SettingsError
from serve_app.settings.load import read_config
from serve_app.version import VERSION

UPSTREAM = {"name": "vendor", "url": "http://127.0.0.1:1/v1"}


def config(folder: Path, upstream: Mapping[str, Any] = UPSTREAM, **args: Any) -> Path:
    file = folder / "config.yaml"
    models = [{"id": "m", "upstreams": [dict(upstream)]}]
    application = {"name": "p", "args": {"models": models, **args}}
    file.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [application]}))
    return file


def certificate(folder: Path, name: str) -> dict[str, str]:
    """A self-made certificate and its key."""
    paths = {"tls_certificate": str(folder / f"{name}.pem"), "tls_key": str(folder / f"{name}.key")}
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-days", "1"]
    subprocess.run(
        [*command, "-out", paths["tls_certificate"], "-keyout", paths["tls_key"]],
        check=True,
        capture_output=True,
    )
    return paths


def warnings(file: Path, **environment: str) -> list[str]:
    return check(file, read_config(file), environment)


def said(file: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        warnings(file)
    return str(caught.value)


def test_what_would_start_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(config(tmp_path, proxy=certificate(tmp_path, "own")))]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_file_is_read_once_so_that_it_may_be_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of ``promptly check <(sed … config.yaml)``."""
    models = [{"id": "m", "source": "./nowhere", "engine": {"options": {"max_logprobs": 3}}}]
    reader, writer = os.pipe()
    os.write(writer, config(tmp_path, models=models).read_bytes())
    os.close(writer)
    try:
        assert main(["check", "--without-vllm", f"/dev/fd/{reader}"]) == 0
    finally:
        os.close(reader)
    told = capsys.readouterr()
    assert told.err.count("no such folder on this machine") == 1
    assert told.out.startswith("models[0] m: tool calls: ")


def test_it_says_which_parsers_an_engine_gets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    engines = [{"tools": "hermes", "reasoning": "off"}, {"options": {"reasoning_parser": "qwen3"}}]
    models = [{"id": f"m{n}", "source": str(tmp_path), "engine": each} for n, each in enumerate(engines)]
    application = {"name": "p", "args": {"models": models}}
    file.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [application]}))
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "models[0] m0: tool calls: hermes (set by engine.tools)",
        "models[0] m0: reasoning: none (engine.reasoning is off)",
        "models[1] m1: tool calls: none (the model's files could not be read; engine.tools names a parser)",
        "models[1] m1: reasoning: qwen3 (set by engine.options.reasoning_parser)",
    ]


def test_a_wrong_setting_fails_with_the_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path, UPSTREAM | {"url": "abacus"})
    assert main(["check", str(file)]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"{file}: models[0].upstreams[0].url = 'abacus'")


@pytest.mark.parametrize("files", [[], ["a", "b"]])
def test_anything_but_one_file_is_wrong_usage(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", *files])
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_keys_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = config(tmp_path, auth={"keys_file": str(tmp_path / "keys.json")})
    assert said(file).startswith(f"{file}: auth.keys_file = ")


def test_an_upstreams_key_that_is_not_set_is_named(tmp_path: Path) -> None:
    file = config(tmp_path, UPSTREAM | {"key_env": "VENDOR_KEY"})
    assert "VENDOR_KEY" in said(file)
    assert warnings(file, VENDOR_KEY="sk-0123456789") == []


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = config(tmp_path, proxy={"tls_certificate": "/nowhere/server.pem"})
    assert "proxy.tls_certificate = '/nowhere/server.pem'" in said(file)


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    mixed = certificate(tmp_path, "own") | {"tls_key": certificate(tmp_path, "other")["tls_key"]}
    assert "proxy.tls_key = " in said(config(tmp_path, proxy=mixed))


def test_authorities_that_are_not_there_are_named(tmp_path: Path) -> None:
    proxy = certificate(tmp_path, "own") | {"tls_client_ca": "/nowhere/ca.pem"}
    assert "proxy.tls_client_ca = '/nowhere/ca.pem'" in said(config(tmp_path, proxy=proxy))


# ---- valid, and probably not meant ----


@pytest.mark.parametrize(
    ("kind", "path", "doubt"),
    [
        ("openai", "/v1/chat/completion", "did you mean '/v1/chat/completions'?"),
        ("openai", "/v1/nothing", "not a path that an OpenAI-compatible server is known to have"),
        ("vllm", "/v1/batches", "not a path that an engine is known to have"),
        ("vllm", "/v1/files", "it takes uploads, which are not relayed (415)"),
    ],
)
def test_a_path_that_nobody_is_known_to_have_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, path: str, doubt: str
) -> None:
    file = config(tmp_path, UPSTREAM | {"kind": kind, "paths": ["/v1/embeddings", path]})
    assert main(["check", str(file)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file}: warning: models[0].upstreams[0].paths[1] = {path!r}: ")
    assert doubt in line


def test_paths_that_are_known_and_not_offered_by_default_are_no_warning(tmp_path: Path) -> None:
    paths = ["/v1/responses", "/v1/images/generations"]
    assert warnings(config(tmp_path, UPSTREAM | {"paths": paths})) == []


def test_a_models_folder_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    there = tmp_path / "model"
    there.mkdir()
    models = [
        {"id": "a", "source": str(there), "engine": {}},
        {"id": "b", "source": str(tmp_path / "modle"), "engine": {}},
        {"id": "c", "source": "org/model", "engine": {}},
    ]
    (line,) = warnings(config(tmp_path, models=models))
    assert line == f"models[1].source = {str(tmp_path / 'modle')!r}: no such folder on this machine"


@pytest.mark.parametrize("section", ["accounts", "responses", "feedback"])
@pytest.mark.parametrize("kind", ["text", "short", "folder"])
def test_what_is_no_database_in_the_place_of_a_store_is_refused_and_left_alone(
    tmp_path: Path, section: str, kind: str
) -> None:
    name, others = STORES[section]
    file = tmp_path / section / name
    file.parent.mkdir()
    if kind == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"some notes\n" * 50 if kind == "text" else b"SQLite format 3\0")
    own = {section: {"path": str(file.parent)}}
    refused = said(config(tmp_path, **{"responses": {"enabled": False}, **others, **own}))
    assert f"{file}: it is not an SQLite database" in refused
    assert f"{section}.path = {str(file.parent)!r}" in refused
    assert refused.count("\n") == 0
    assert [path.name for path in file.parent.iterdir()] == [name]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    file = tmp_path / responses_schema.FILE
    file.touch()
    assert main(["check", str(config(tmp_path, responses={"path": str(tmp_path)}))]) == 0


STORES = {
    "accounts": (accounts_schema.FILE, {"auth": {"accounts": True}}),
    "responses": (responses_schema.FILE, {}),
    "feedback": (feedback_schema.FILE, {}),
}


@pytest.mark.parametrize("section", STORES)
def test_a_file_that_a_newer_version_has_written_is_refused_and_left_alone(
    tmp_path: Path, section: str
) -> None:
    """As after a downgrade over a change of the schema."""
    name, others = STORES[section]
    file = tmp_path / section / name
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE later(row); PRAGMA user_version=7; PRAGMA journal_mode=WAL")
    before = file.read_bytes()
    own = {section: {"path": str(file.parent)}}
    refused = said(config(tmp_path, **{"responses": {"enabled": False}, **others, **own}))
    assert f"{file}: a newer version of Promptly wrote it (schema 7; this is {VERSION}" in refused
    assert refused.count("\n") == 0
    assert [path.name for path in file.parent.iterdir()] == [name]
    assert file.read_bytes() == before
    if section == "responses":  # who keeps none does not open it
        switched_off = {"enabled": False, "path": str(file.parent)}
        assert main(["check", str(config(tmp_path, responses=switched_off))]) == 0
        assert file.read_bytes() == before
