"""The commands that the supervisor prints when the application is ready."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.launcher.announcement import demo_commands, token_line
from deployments.launcher.config import read_config

UNIX_SOCKET_PATH_BYTES = 107


def test_with_a_certificate_clients_come_by_https(config_file: Path) -> None:
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    document["applications"][0]["args"]["proxy"] = {"tls_certificate": "server.pem"}
    config_file.write_text(yaml.safe_dump(document), encoding="utf-8")

    config = read_config(config_file)

    assert config.url == "https://127.0.0.1:8123"
    assert all("curl -" in command and " -k " in command for _, command in demo_commands(config))


def test_the_commands_to_paste_are_what_a_shell_and_the_server_understand(config_file: Path) -> None:
    config = read_config(config_file)

    words = [shlex.split(command) for _, command in demo_commands(config)]
    bodies = [json.loads(command[-1]) for command in words]

    assert all(command[0] == "curl" and "-N" in command for command in words)
    assert all(f"{config.url}/v1/chat/completions" in command for command in words)
    assert {(body["model"], body["temperature"], body["stream"]) for body in bodies} == {("small", 0, True)}
    questions = [body["messages"][0]["content"] for body in bodies]
    assert questions[0] == questions[1] != questions[2]


def test_where_keys_are_needed_the_commands_to_paste_send_one(config_file: Path) -> None:
    config = replace(read_config(config_file), needs_key=True)

    commands = [command for _, command in demo_commands(config)]

    assert all('-H "Authorization: Bearer $KEY"' in command for command in commands)


@pytest.mark.parametrize("without", [{"cache": None}, {"models": [{"id": "small", "cache": False}]}])
def test_without_a_cache_no_command_is_said_to_be_answered_by_one(
    config_file: Path, without: dict[str, Any]
) -> None:
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    document["applications"][0]["args"] |= without
    config_file.write_text(yaml.safe_dump(document), encoding="utf-8")

    ((explanation, _),) = demo_commands(read_config(config_file))

    assert explanation == "a streamed answer:"


def test_the_admin_token_is_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.write_text("Gq63secret")
    assert token_line(token, shown=True) == f"Gq63secret (in {token})"
    assert token_line(token, shown=False) == f"in {token}"
