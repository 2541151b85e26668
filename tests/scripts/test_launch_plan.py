"""The values a start is made of: config, ports, folder, commands, environment."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import stat
import sys
from dataclasses import astuple, replace
from pathlib import Path

import pytest
import yaml
from launcher import plan

from deployments.platform.secret_environment import with_secrets

UNIX_SOCKET_PATH_BYTES = 107


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    document = {
        "http_options": {"host": "127.0.0.1", "port": 8123},
        "applications": [
            {
                "name": "promptly",
                "route_prefix": "/",
                "import_path": "serve_app.app:build",
                "args": {
                    "models": [
                        {
                            "id": "small",
                            "source": "owner/small",
                            "engine": {"speculation": {"method": "draft_model", "model": "owner/draft"}},
                        }
                    ],
                    "embedder": {"id": "embed", "source": "owner/embed"},
                },
            }
        ],
    }
    path = tmp_path / "app.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> plan.StartFolder:
    folder = plan.StartFolder(tmp_path)
    folder.admin_token.write_text("the-admin-token-of-the-tests")
    return folder


def test_the_config_says_where_it_listens_and_what_it_serves(config_file: Path) -> None:
    config = plan.read_config(config_file)

    assert config.url == "http://127.0.0.1:8123"
    assert config.model_id == "small"
    assert set(config.model_sources) == {"owner/small", "owner/draft", "owner/embed"}


def test_a_servers_own_name_for_a_model_is_nothing_to_load_here() -> None:
    upstream = {"name": "a", "url": "http://10.0.0.1/v1", "model": "owner/theirs"}
    args = {"models": [{"id": "m", "upstreams": [upstream]}], "embedder": {"source": "owner/embed"}}

    assert list(plan.model_sources(args)) == ["owner/embed"]


def test_an_adapter_is_loaded_here_too(config_file: Path, folder: plan.StartFolder, tmp_path: Path) -> None:
    """With the hub switched off it could not be downloaded, and the engine would not start."""
    (tmp_path / "model").mkdir()
    adapters = {"near": str(tmp_path), "far": "owner/adapter"}
    model = {"id": "m", "source": str(tmp_path / "model"), "engine": {"lora": {"adapters": adapters}}}
    assert set(plan.model_sources({"models": [model]})) == {model["source"], str(tmp_path), "owner/adapter"}

    def environment(**changed: str) -> dict[str, str]:
        args = {"models": [{**model, "engine": {"lora": {"adapters": {**adapters, **changed}}}}]}
        sources = tuple(plan.model_sources(args))
        return plan.ray_environment({}, folder, replace(plan.read_config(config_file), model_sources=sources))

    assert "HF_HUB_OFFLINE" not in environment()
    assert environment(far=str(tmp_path / "model"))["HF_HUB_OFFLINE"] == "1"


def test_a_name_that_is_only_compared_is_nothing_to_load() -> None:
    """It is no folder, and the hub would be asked for the sake of it at every start."""
    args = {
        "models": [{"id": "small", "source": "/models/small", "aliases": ["source"]}],
        "auto_models": [{"id": "auto", "rules": [{"model": "small"}]}],
        "cache": {"rules": [{"model": "small", "ttl_s": 1}], "cross_encoder": {"source": "owner/judge"}},
        "embedder": {"id": "e", "source": "/models/embed"},
    }
    assert list(plan.model_sources(args)) == ["/models/small", "/models/embed", "owner/judge"]


@pytest.mark.parametrize("args", [None, [], "x", {"models": 3}, {"models": [None, {"engine": [1]}]}])
def test_settings_of_another_shape_name_no_source(args: object) -> None:
    """They are refused later, with a message that says where they are wrong."""
    assert list(plan.model_sources(args)) == []


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8123"), ("::1", "http://[::1]:8123"), ("box", "http://box:8123")],
)
def test_the_url_is_one_that_this_machine_can_reach(config_file: Path, host: str, url: str) -> None:
    assert replace(plan.read_config(config_file), host=host).url == url


def test_a_config_without_http_options_listens_where_serve_does(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("applications: [{import_path: a:b}]", encoding="utf-8")

    config = plan.read_config(path)

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

    with pytest.raises(plan.ConfigError, match=r"app\.yaml") as raised:
        plan.read_config(path)

    assert complaint in str(raised.value)


def test_another_port_goes_into_a_copy_of_the_config(config_file: Path, folder: plan.StartFolder) -> None:
    before = config_file.read_text(encoding="utf-8")
    (folder.root / "start").mkdir()

    running = plan.config_to_run(
        plan.read_config(config_file, port=9000), plan.StartFolder(folder.root / "start")
    )

    assert running.path != config_file
    assert plan.read_config(running.path).port == 9000
    assert plan.read_config(running.path).model_id == "small"
    assert config_file.read_text(encoding="utf-8") == before


def test_the_config_itself_runs_when_the_port_is_its_own(config_file: Path, folder: plan.StartFolder) -> None:
    assert plan.config_to_run(plan.read_config(config_file, port=8123), folder).path == config_file


def test_a_port_is_free_until_someone_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not plan.port_is_free("127.0.0.1", port)
        assert not plan.port_is_free("0.0.0.0", port)
    assert plan.port_is_free("127.0.0.1", port)


def test_picked_ports_are_distinct_free_and_not_those_taken() -> None:
    taken = frozenset({8265, 9101, 8404})

    ports = astuple(plan.pick_ports(taken))

    assert len(set(ports)) == len(ports)
    assert not taken & set(ports)
    assert all(plan.port_is_free("0.0.0.0", port) for port in ports)


def test_the_folder_of_a_start_is_private_and_short_enough_for_its_sockets() -> None:
    folder = plan.StartFolder.create()
    try:
        assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
        for secret in (folder.token, folder.admin_token):
            assert len(secret.read_text(encoding="ascii")) >= 32
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        node, session = "f" * 56, "session_2026-01-01_00-00-00_123456_1234567"
        haproxy_binds = folder.haproxy / node / "a.sock.1234567.tmp"
        ray_binds = folder.ray / session / "sockets" / "plasma_store.1234567"
        assert max(len(str(haproxy_binds)), len(str(ray_binds))) <= UNIX_SOCKET_PATH_BYTES
    finally:
        shutil.rmtree(folder.root)


@pytest.mark.parametrize(("cores", "offered"), [(2, 16), (64, 64)])
def test_ray_offers_enough_logical_cpus(folder: plan.StartFolder, cores: int, offered: int) -> None:
    command = plan.ray_command(plan.pick_ports(), folder, cores)

    assert f"--num-cpus={offered}" in command
    assert Path(command[0]) == Path(sys.executable).parent / "ray"


def test_ray_gets_addresses_and_a_folder_of_its_own(folder: plan.StartFolder) -> None:
    ports = plan.pick_ports()

    command = plan.ray_command(ports, folder, 2)

    assert {"--block", f"--port={ports.gcs}", f"--dashboard-port={ports.dashboard}"} <= set(command)
    assert {"--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"} <= set(command)
    assert f"--temp-dir={folder.ray}" in command


def test_the_environment_names_no_other_cluster_and_keeps_what_the_user_tuned(
    config_file: Path, folder: plan.StartFolder
) -> None:
    base = {
        "PATH": "/bin",
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_AUTH_TOKEN": "theirs",
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "PROMPTLY_ADMIN_TOKEN": "given-by-the-user-0123456789",
    }

    env = plan.ray_environment(base, folder, plan.read_config(config_file))

    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & env.keys()
    assert (env["PATH"], env["RAY_SERVE_ENABLE_HA_PROXY"]) == ("/bin", "0")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", str(folder.token))
    # The process that reads it opens the file; the others have no way to it in their environment.
    assert env["PROMPTLY_ADMIN_TOKEN_FILE"] == str(folder.admin_token)
    assert "PROMPTLY_ADMIN_TOKEN" not in env


def test_the_hub_is_left_alone_only_when_every_model_is_here(
    config_file: Path, folder: plan.StartFolder, tmp_path: Path
) -> None:
    absent = plan.read_config(config_file)
    present = replace(absent, model_sources=(str(tmp_path),))

    assert "HF_HUB_OFFLINE" not in plan.ray_environment({}, folder, absent)
    assert plan.ray_environment({}, folder, present)["HF_HUB_OFFLINE"] == "1"


def test_with_a_certificate_clients_come_by_https(config_file: Path) -> None:
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    document["applications"][0]["args"]["proxy"] = {"tls_certificate": "server.pem"}
    config_file.write_text(yaml.safe_dump(document), encoding="utf-8")

    config = plan.read_config(config_file)

    assert config.url == "https://127.0.0.1:8123"
    assert all("curl -" in command and " -k " in command for _, command in plan.demo_commands(config))


def test_keys_named_by_variable_are_in_a_private_file_and_in_no_environment(
    config_file: Path, folder: plan.StartFolder
) -> None:
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    args = document["applications"][0]["args"]
    args["models"][0]["upstreams"] = [{"name": "vendor", "key_env": "VENDOR_KEY"}]
    args["auth"] = {"keys_env": "CLIENT_KEYS"}
    args["cache"] = {"qdrant": {"key_env": "NOT_SET"}}
    config_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    base = {"PATH": "/bin", "VENDOR_KEY": "sk-vendor", "CLIENT_KEYS": "a=key"}
    config = plan.read_config(config_file)

    env = plan.ray_environment(base, folder, config)
    plan.write_secrets(base, folder, config)

    assert not {"VENDOR_KEY", "CLIENT_KEYS"} & env.keys()
    assert "sk-vendor" not in "".join(env.values())
    assert stat.S_IMODE(folder.secrets.stat().st_mode) == 0o600
    found = with_secrets(env)
    assert (found["VENDOR_KEY"], found["CLIENT_KEYS"], found["PATH"]) == ("sk-vendor", "a=key", "/bin")
    assert "NOT_SET" not in found


def test_the_settings_for_other_commands_can_be_sourced(folder: plan.StartFolder) -> None:
    ports = plan.pick_ports()

    plan.write_client_settings(ports, folder)

    exported = [shlex.split(line) for line in folder.settings.read_text(encoding="utf-8").splitlines()]
    assert ["export", f"RAY_ADDRESS=127.0.0.1:{ports.gcs}"] in exported
    assert ["export", f"RAY_AUTH_TOKEN_PATH={folder.token}"] in exported
    assert ["export", f"PROMPTLY_ADMIN_TOKEN={folder.admin_token.read_text()}"] in exported
    assert stat.S_IMODE(folder.settings.stat().st_mode) == 0o600


def test_the_token_that_the_user_gives_is_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", "given-by-the-user-0123456789")
    folder = plan.StartFolder.create()
    try:
        assert folder.admin_token.read_text() == "given-by-the-user-0123456789"
    finally:
        shutil.rmtree(folder.root)


@pytest.mark.parametrize(("auth", "needed"), [(None, True), ("loopback", True), ("none", False)])
def test_a_start_without_keys_needs_the_admin_token(tmp_path: Path, auth: str | None, needed: bool) -> None:
    args = {"models": []} | ({} if auth is None else {"auth": auth})
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"applications": [{"args": args}]}))
    assert plan.read_config(path).needs_admin_token is needed


def test_the_port_of_the_metrics_is_the_usual_one_where_it_is_free() -> None:
    ports = plan.pick_ports(frozenset(range(9_103, 9_110)))
    if plan.port_is_free("0.0.0.0", plan.METRICS_PORT):
        assert plan.metrics_url(ports) == "http://127.0.0.1:9102/metrics"
    else:
        assert ports.ray_metrics in plan.FREE_PORT_RANGE


def test_the_commands_to_paste_are_what_a_shell_and_the_server_understand(config_file: Path) -> None:
    config = plan.read_config(config_file)

    words = [shlex.split(command) for _, command in plan.demo_commands(config)]
    bodies = [json.loads(command[-1]) for command in words]

    assert all(command[0] == "curl" and "-N" in command for command in words)
    assert all(f"{config.url}/v1/chat/completions" in command for command in words)
    assert {(body["model"], body["temperature"], body["stream"]) for body in bodies} == {("small", 0, True)}
    questions = [body["messages"][0]["content"] for body in bodies]
    assert questions[0] == questions[1] != questions[2]


def test_where_keys_are_needed_the_commands_to_paste_send_one(config_file: Path) -> None:
    config = replace(plan.read_config(config_file), needs_key=True)

    commands = [command for _, command in plan.demo_commands(config)]

    assert all('-H "Authorization: Bearer $KEY"' in command for command in commands)


@pytest.mark.parametrize(
    ("auth", "needed"), [("loopback", False), ("none", False), ({"keys_file": "keys.json"}, True)]
)
def test_a_key_is_needed_where_the_settings_name_keys(tmp_path: Path, auth: object, needed: bool) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"applications": [{"args": {"auth": auth}}]}))
    assert plan.read_config(path).needs_key is needed
