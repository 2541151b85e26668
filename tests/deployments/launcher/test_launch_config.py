"""What the supervisor reads from a Serve config file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.launcher.config import ConfigError, config_to_run, model_sources, read_config
from deployments.launcher.folder import StartFolder

UNIX_SOCKET_PATH_BYTES = 107


def test_the_config_says_where_it_listens_and_what_it_serves(config_file: Path) -> None:
    config = read_config(config_file)

    assert config.url == "http://127.0.0.1:8123"
    assert config.model_id == "small"
    assert set(config.model_sources) == {"owner/small", "owner/draft", "owner/embed"}


def test_a_servers_own_name_for_a_model_is_nothing_to_load_here() -> None:
    upstream = {"name": "a", "url": "http://10.0.0.1/v1", "model": "owner/theirs"}
    args = {"models": [{"id": "m", "upstreams": [upstream]}], "embedder": {"source": "owner/embed"}}

    assert list(model_sources(args)) == ["owner/embed"]


def test_a_name_that_is_only_compared_is_nothing_to_load() -> None:
    """It is no folder, and the hub would be asked for the sake of it at every start."""
    args = {
        "models": [{"id": "small", "source": "/models/small", "aliases": ["source"]}],
        "auto_models": [{"id": "auto", "rules": [{"model": "small"}]}],
        "cache": {"rules": [{"model": "small", "ttl_s": 1}], "cross_encoder": {"source": "owner/judge"}},
        "embedder": {"id": "e", "source": "/models/embed"},
    }
    assert list(model_sources(args)) == ["/models/small", "/models/embed", "owner/judge"]


@pytest.mark.parametrize("args", [None, [], "x", {"models": 3}, {"models": [None, {"engine": [1]}]}])
def test_settings_of_another_shape_name_no_source(args: object) -> None:
    """They are refused later, with a message that says where they are wrong."""
    assert list(model_sources(args)) == []


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8123"), ("::1", "http://[::1]:8123"), ("box", "http://box:8123")],
)
def test_the_url_is_one_that_this_machine_can_reach(config_file: Path, host: str, url: str) -> None:
    assert replace(read_config(config_file), host=host).url == url


def test_a_config_without_http_options_listens_where_serve_does(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("applications: [{import_path: a:b}]", encoding="utf-8")

    config = read_config(path)

    assert (config.host, config.port) == ("0.0.0.0", 8000)
    assert config.model_id is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("applications: []", "applications = []"),
        ("- a list", "expected a Serve config file"),
        ("a: [", "app.yaml"),
    ],
)
def test_an_unusable_config_is_refused_with_its_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"app\.yaml") as raised:
        read_config(path)

    assert complaint in str(raised.value)


def test_another_port_goes_into_a_copy_of_the_config(config_file: Path, folder: StartFolder) -> None:
    before = config_file.read_text(encoding="utf-8")
    (folder.root / "start").mkdir()

    running = config_to_run(read_config(config_file, port=9000), StartFolder(folder.root / "start"))

    assert running.path != config_file
    assert read_config(running.path).port == 9000
    assert read_config(running.path).model_id == "small"
    assert config_file.read_text(encoding="utf-8") == before


def test_the_config_itself_runs_when_the_port_is_its_own(config_file: Path, folder: StartFolder) -> None:
    assert config_to_run(read_config(config_file, port=8123), folder).path == config_file


@pytest.mark.parametrize(("auth", "needed"), [(None, True), ("loopback", True), ("none", False)])
def test_a_start_without_keys_needs_the_admin_token(tmp_path: Path, auth: str | None, needed: bool) -> None:
    args = {"models": []} | ({} if auth is None else {"auth": auth})
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"applications": [{"args": args}]}))
    assert read_config(path).needs_admin_token is needed


@pytest.mark.parametrize(
    ("auth", "needed"), [("loopback", False), ("none", False), ({"keys_file": "keys.json"}, True)]
)
def test_a_key_is_needed_where_the_settings_name_keys(tmp_path: Path, auth: object, needed: bool) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"applications": [{"args": {"auth": auth}}]}))
    assert read_config(path).needs_key is needed
