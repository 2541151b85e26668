"""The commands and the environment of a start."""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from deployments.launcher.config import model_sources, read_config, secret_variables
from deployments.launcher.folder import StartFolder
from deployments.launcher.plan import ray_command, ray_environment, write_client_settings, write_secrets
from deployments.launcher.ports import Ports
from deployments.platform.secret_environment import with_secrets
from serve_app.settings import Settings

UNIX_SOCKET_PATH_BYTES = 107


def test_an_adapter_is_loaded_here_too(config_file: Path, folder: StartFolder, tmp_path: Path) -> None:
    """With the hub switched off it could not be downloaded, and the engine would not start."""
    (tmp_path / "model").mkdir()
    adapters = {"near": str(tmp_path), "far": "owner/adapter"}
    model = {"id": "m", "source": str(tmp_path / "model"), "engine": {"lora": {"adapters": adapters}}}
    assert set(model_sources({"models": [model]})) == {model["source"], str(tmp_path), "owner/adapter"}

    def environment(**changed: str) -> dict[str, str]:
        args = {"models": [{**model, "engine": {"lora": {"adapters": {**adapters, **changed}}}}]}
        sources = tuple(model_sources(args))
        return ray_environment({}, folder, replace(read_config(config_file), model_sources=sources))

    assert "HF_HUB_OFFLINE" not in environment()
    assert environment(far=str(tmp_path / "model"))["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(("cores", "offered"), [(2, 16), (64, 64)])
def test_ray_offers_enough_logical_cpus(folder: StartFolder, ports: Ports, cores: int, offered: int) -> None:
    command = ray_command(ports, folder, cores)

    assert f"--num-cpus={offered}" in command
    assert Path(command[0]) == Path(sys.executable).parent / "ray"


def test_ray_gets_addresses_and_a_folder_of_its_own(folder: StartFolder, ports: Ports) -> None:
    command = ray_command(ports, folder, 2)

    assert {"--block", f"--port={ports.gcs}", f"--dashboard-port={ports.dashboard}"} <= set(command)
    assert {"--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"} <= set(command)
    assert f"--temp-dir={folder.ray}" in command


def test_the_environment_names_no_other_cluster_and_keeps_what_the_user_tuned(
    config_file: Path, folder: StartFolder
) -> None:
    base = {
        "PATH": "/bin",
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_AUTH_TOKEN": "theirs",
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "PROMPTLY_ADMIN_TOKEN": "given-by-the-user-0123456789",
    }

    env = ray_environment(base, folder, read_config(config_file))

    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & env.keys()
    assert (env["PATH"], env["RAY_SERVE_ENABLE_HA_PROXY"]) == ("/bin", "0")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", str(folder.token))
    # The process that reads it opens the file; the others have no way to it in their environment.
    assert env["PROMPTLY_ADMIN_TOKEN_FILE"] == str(folder.admin_token)
    assert "PROMPTLY_ADMIN_TOKEN" not in env


def test_the_hub_is_left_alone_only_when_every_model_is_here(
    config_file: Path, folder: StartFolder, tmp_path: Path
) -> None:
    absent = read_config(config_file)
    present = replace(absent, model_sources=(str(tmp_path),))

    assert "HF_HUB_OFFLINE" not in ray_environment({}, folder, absent)
    assert ray_environment({}, folder, present)["HF_HUB_OFFLINE"] == "1"


def test_keys_named_by_variable_are_in_a_private_file_and_in_no_environment(
    config_file: Path, folder: StartFolder
) -> None:
    document = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    args = document["applications"][0]["args"]
    args["models"][0]["upstreams"] = [{"name": "vendor", "key_env": "VENDOR_KEY"}]
    args["auth"] = {
        "keys_env": "CLIENT_KEYS",
        "oidc": {"console": {"client_secret_env": "CONSOLE_SECRET"}},
    }
    args["cache"] = {"qdrant": {"key_env": "NOT_SET"}}
    args["accounts"] = {"store": {"url_env": "LEDGER"}}
    args["guardrails"] = {"guards": [{"http": {"headers_env": {"x-api-key": "GUARD_KEY"}}}]}
    config_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    base = {"PATH": "/bin", "VENDOR_KEY": "sk-vendor", "CLIENT_KEYS": "a=key", "CONSOLE_SECRET": "s3cret"}
    base |= {"LEDGER": "postgresql://u:p4ss@db/x", "GUARD_KEY": "gk-1"}
    config = read_config(config_file)

    env = ray_environment(base, folder, config)
    write_secrets(base, folder, config)

    assert not {"VENDOR_KEY", "CLIENT_KEYS", "CONSOLE_SECRET", "LEDGER", "GUARD_KEY"} & env.keys()
    assert not any(secret in "".join(env.values()) for secret in ("sk-vendor", "p4ss", "gk-1"))
    assert stat.S_IMODE(folder.secrets.stat().st_mode) == 0o600
    found = with_secrets(env)
    assert (found["VENDOR_KEY"], found["CLIENT_KEYS"], found["PATH"]) == ("sk-vendor", "a=key", "/bin")
    assert found["CONSOLE_SECRET"] == "s3cret"
    assert (found["LEDGER"], found["GUARD_KEY"]) == (base["LEDGER"], base["GUARD_KEY"])
    assert "NOT_SET" not in found


def test_every_setting_that_names_a_variable_is_taken_for_one_with_a_secret() -> None:
    found = {name for name in names_in(Settings, set()) if name.endswith("_env")}
    assert {"key_env", "url_env", "headers_env"} <= found
    for name in found:
        value: Any = {"x": "VARIABLE"} if name == "headers_env" else "VARIABLE"
        assert list(secret_variables({"some": [{name: value}]})) == ["VARIABLE"], name


def names_in(kind: Any, seen: set[Any]) -> Iterator[str]:
    """The names of all settings, through unions and lists."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        for name, field in kind.model_fields.items():
            yield name
            yield from names_in(field.annotation, seen)
    for inner in get_args(kind):
        yield from names_in(inner, seen)


def test_the_settings_for_other_commands_can_be_sourced(folder: StartFolder, ports: Ports) -> None:
    write_client_settings(ports, folder)

    exported = [shlex.split(line) for line in folder.settings.read_text(encoding="utf-8").splitlines()]
    assert ["export", f"RAY_ADDRESS=127.0.0.1:{ports.gcs}"] in exported
    assert ["export", f"RAY_AUTH_TOKEN_PATH={folder.token}"] in exported
    assert ["export", f"PROMPTLY_ADMIN_TOKEN={folder.admin_token.read_text()}"] in exported
    assert stat.S_IMODE(folder.settings.stat().st_mode) == 0o600


@pytest.mark.parametrize(("port", "said"), [(None, False), (9000, True)])
def test_the_settings_for_other_commands_say_which_port_the_start_was_given(
    folder: StartFolder, ports: Ports, port: int | None, said: bool
) -> None:
    write_client_settings(ports, folder, port)

    assert ("export PROMPTLY_GIVEN_PORT=9000\n" in folder.settings.read_text(encoding="utf-8")) == said
