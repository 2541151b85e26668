"""A start that cannot work ends before Ray starts."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from deployments.launcher.checks import check_commands, check_models
from deployments.launcher.config import ServeConfig, read_config
from deployments.launcher.errors import StartError
from deployments.launcher.ports import free_port

ROOT = Path(__file__).parents[3]
ABSENT = "nobody/not-a-model"


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    engine = {"accelerator": "cpu", "num_cpus": 0}
    application = {
        "name": "promptly",
        "import_path": "serve_app.app:build",
        "args": {"models": [{"id": "chat", "source": ABSENT, "engine": engine}]},
    }
    http = {"host": "127.0.0.1", "port": free_port()}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"http_options": http, "applications": [application]}))
    return read_config(file)


def fetched(home: Path) -> None:
    snapshot = home / "hub" / "models--nobody--not-a-model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)


def test_without_weights_and_without_a_hub_a_start_names_the_model_and_ends(
    config: ServeConfig, tmp_path: Path
) -> None:
    """As in a container whose image has none: nothing of Ray or vLLM is started for it."""
    folders = {"HF_HOME": str(tmp_path / "home"), "PROMPTLY_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "deployments.cli", "serve", str(config.path)],
        env={**os.environ, **folders, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert f"{config.path}: {ABSENT}: not on this machine, and HF_HUB_OFFLINE" in line
    assert "Ray started" not in done.stdout


def test_without_rays_commands_a_start_says_what_brings_them(tmp_path: Path) -> None:
    python = tmp_path / "python"
    serve = tmp_path / "serve"
    serve.write_text("#!/bin/sh\n")
    serve.chmod(0o700)
    with pytest.raises(StartError) as said:
        check_commands(str(python))
    assert str(said.value) == (
        f"{tmp_path / 'ray'}: not there, or no program; a start runs Ray by it: "
        f"{python} -m pip install --force-reinstall --no-deps ray=={version('ray')}"
    )
    check_commands(sys.executable)


def test_a_model_in_the_hub_clients_cache_is_there(config: ServeConfig, tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "yes"}
    with pytest.raises(StartError, match=ABSENT):
        check_models(config, environment)
    fetched(tmp_path / "home")
    check_models(config, environment)


def test_where_the_hub_may_be_asked_no_model_is_missed(config: ServeConfig, tmp_path: Path) -> None:
    check_models(config, {"HF_HOME": str(tmp_path)})


def test_an_embedder_whose_package_has_the_weights_needs_no_hub(tmp_path: Path) -> None:
    multilingual = read_config(ROOT / "config" / "multilingual.yaml")
    check_models(multilingual, {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})


@pytest.mark.parametrize("source", ["s3://bucket/model", "/models/absent", "owner/model:Q4_K_M"])
def test_a_source_that_is_no_name_on_the_hub_is_left_to_the_engine(
    config: ServeConfig, tmp_path: Path, source: str
) -> None:
    text = config.path.read_text().replace(ABSENT, source)
    config.path.write_text(text)
    check_models(read_config(config.path), {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})
