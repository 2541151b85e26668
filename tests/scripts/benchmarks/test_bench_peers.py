"""What the benchmark's peers are started with, and that nothing of them stays."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.peers import PeerError, Script
from benchmarks.peers import processes as peer_processes
from benchmarks.peers.endpoint import ROOT, environment, wait_for
from benchmarks.peers.litellm_proxy import proxy_config
from benchmarks.peers.promptly import with_private_store
from benchmarks.peers.ray_serve_llm import SCRIPTED_ENGINE, real_llm_config, scripted_llm_config
from benchmarks.peers.supervised import serve_config
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS, ENGINE_ENVIRONMENT, server_command

from deployments.launcher import processes
from deployments.launcher.config import read_config
from deployments.launcher.ports import LOOPBACK, free_port, port_is_free

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep({seconds})
"""


@pytest.fixture
def local_engine() -> dict[str, Any]:
    """The engine of config/local.yaml."""
    document = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    engine: dict[str, Any] = document["applications"][0]["args"]["models"][0]["engine"]
    return engine


def test_peers_with_a_real_model_run_the_local_engine_without_speculation(
    local_engine: dict[str, Any],
) -> None:
    assert local_engine.keys() - ENGINE_ARGUMENTS.keys() == {
        "accelerator",
        "num_cpus",
        "cpu_kv_cache_gib",
        "options",  # a chat template, which is the model's own without tools
        "speculation",
    }
    assert {name: local_engine[name] for name in ENGINE_ARGUMENTS} == ENGINE_ARGUMENTS
    assert ENGINE_ENVIRONMENT["VLLM_CPU_KVCACHE_SPACE"] == str(local_engine["cpu_kv_cache_gib"])


def test_real_peer_has_the_engine_and_its_logical_cpus(local_engine: dict[str, Any]) -> None:
    config = real_llm_config("small", Path("/models/small"))
    assert config["model_loading_config"] == {"model_id": "small", "model_source": "/models/small"}
    assert config["engine_kwargs"] == ENGINE_ARGUMENTS
    assert config["deployment_config"]["ray_actor_options"]["num_cpus"] == local_engine["num_cpus"]


def test_vllm_command_has_every_engine_argument() -> None:
    command = server_command("small", Path("/models/small"), 20_001)
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert "--host 127.0.0.1 --port 20001" in " ".join(command)
    assert "--dtype bfloat16 --max-model-len 4096" in " ".join(command)
    assert command[-2:] == ["--enable-prefix-caching", "--enforce-eager"]


def test_scripted_peer_names_an_engine_that_exists_and_passes_the_script() -> None:
    config = scripted_llm_config("scripted", Script(tokens=7, itl_ms=5.0), None)
    module = SCRIPTED_ENGINE.rpartition(".")[0]
    assert find_spec(module) is not None
    assert config["runtime_env"]["env_vars"] == {"RAYLLM_VLLM_ENGINE_CLS": SCRIPTED_ENGINE}
    assert config["experimental_configs"] == {"script": {"tokens": 7, "itl_ms": 5.0}}


def test_batching_is_ray_s_own_unless_it_is_given() -> None:
    default = scripted_llm_config("scripted", Script(), None)
    unbatched = scripted_llm_config("scripted", Script(), 0.0)
    assert "stream_batching_interval_ms" not in default["experimental_configs"]
    assert unbatched["experimental_configs"]["stream_batching_interval_ms"] == 0.0


def test_serve_config_can_be_read_by_the_supervisor(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(serve_config("peer", "some.module:build", {"models": []}, 20_001)))
    config = read_config(file)
    assert config.url == "http://127.0.0.1:20001"


def test_litellm_config_leads_to_the_upstream() -> None:
    (model,) = proxy_config("http://127.0.0.1:20002", "scripted")["model_list"]
    assert model["model_name"] == "scripted"
    assert model["litellm_params"]["api_base"] == "http://127.0.0.1:20002/v1"


def test_promptly_s_cache_gets_a_store_of_its_own(tmp_path: Path) -> None:
    settings = {"models": [], "cache": {"threshold": 0.9}}
    assert with_private_store(settings, tmp_path)["cache"] == {"path": str(tmp_path), "threshold": 0.9}
    assert settings["cache"] == {"threshold": 0.9}


def test_promptly_s_store_stays_where_the_settings_say(tmp_path: Path) -> None:
    settings = {"models": [], "cache": {"path": "/elsewhere"}}
    assert with_private_store(settings, tmp_path) == settings


def test_promptly_without_a_cache_stays_without(tmp_path: Path) -> None:
    assert with_private_store({"models": []}, tmp_path) == {"models": []}


def test_free_port_can_be_bound() -> None:
    assert port_is_free(LOOPBACK, free_port())


def test_waiting_is_bounded() -> None:
    with pytest.raises(PeerError, match="the moon: not there after 0 s"):
        wait_for(lambda: False, 0.0, "the moon")


def test_everything_below_a_peer_ends_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_parent(log, seconds=60) as pid:
        below = processes.descendants(pid)
        assert below == [int(log.read_text())]
    assert not peer_processes.living([pid, *below])


def test_peer_that_ends_by_itself_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(PeerError, match=r"parent: ended by itself \(exit code 0\)"),
        running_parent(log, seconds=0, ready=False),
    ):
        pass
    assert not peer_processes.living([int(log.read_text())])


def running_parent(log: Path, seconds: float, ready: bool = True) -> Any:
    """A process with a child that outlives it."""
    return peer_processes.running(
        "parent",
        [sys.executable, "-c", PARENT.format(seconds=seconds)],
        environment(),
        log=log,
        ready=lambda: ready and bool(log.read_text()),
        limit_s=30.0,
    )
