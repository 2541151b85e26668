"""The environment of an engine's processes: what is compiled outlives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployments.engine.start.environment import COPIED, engine_environment, node_environment
from serve_app.model_store import ModelStore
from serve_app.settings import EngineSettings, ModelSettings

CACHES = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")


def model(**engine: Any) -> ModelSettings:
    return ModelSettings(id="m", source="s", engine=EngineSettings(**({"accelerator": "cpu"} | engine)))


def environment(folder: Path, **engine: Any) -> dict[str, str]:
    """As an engine's own processes see it: on every node the same, and then what its node adds."""
    everywhere = engine_environment(model(**engine))
    return everywhere | node_environment(model(**engine), ModelStore(folder), everywhere)


def programs(folder: Path, *names: str) -> Path:
    """A folder of programs."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def on_gpu_node(tmp_path: Path, *names: str) -> dict[str, str]:
    """The environment where the virtual environment has these programs and CUDA is nowhere else."""
    own = programs(tmp_path / "bin", *names)
    system = {"PATH": str(tmp_path / "system"), "CUDA_HOME": str(tmp_path / "no-cuda")}
    return node_environment(model(accelerator="gpu"), ModelStore(tmp_path), system, programs=own)


def test_every_compile_cache_has_a_folder_of_its_own_under_promptlys(tmp_path: Path) -> None:
    folders = [Path(environment(tmp_path)[name]) for name in CACHES]
    assert len(set(folders)) == len(CACHES)
    assert all(folder.parent == tmp_path for folder in folders)
    assert environment(tmp_path) == environment(tmp_path, enforce_eager=False)  # the same at the next start


def test_the_settings_own_variables_go_first(tmp_path: Path) -> None:
    given = environment(
        tmp_path, cpu_kv_cache_gib=3, env={"VLLM_CACHE_ROOT": "/elsewhere", "OMP_NUM_THREADS": "1"}
    )
    assert given["VLLM_CACHE_ROOT"] == "/elsewhere"
    assert given["OMP_NUM_THREADS"] == "1"
    assert given["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_an_eager_cpu_engine_compiles_nothing(tmp_path: Path) -> None:
    assert environment(tmp_path, enforce_eager=True)["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in environment(tmp_path)
    assert "TORCHDYNAMO_DISABLE" not in environment(tmp_path, accelerator="gpu", enforce_eager=True)


def test_where_media_may_be_fetched_leads_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import envs

    name = "VLLM_MEDIA_URL_ALLOW_REDIRECTS"
    monkeypatch.setenv(name, environment(tmp_path)[name])
    assert envs.environment_variables[name]() is False


@pytest.mark.parametrize(("names", "given"), [((), "0"), (("ninja",), "0"), (("ninja", "nvcc"), None)])
def test_flashinfers_sampler_is_off_where_it_cannot_be_compiled(
    tmp_path: Path, names: tuple[str, ...], given: str | None
) -> None:
    assert on_gpu_node(tmp_path, *names).get("VLLM_USE_FLASHINFER_SAMPLER") == given


def test_the_virtual_environments_programs_are_found_first(tmp_path: Path) -> None:
    found = on_gpu_node(tmp_path)
    assert found["PATH"].split(":") == [str(tmp_path / "bin"), str(tmp_path / "system")]
    assert found[COPIED].split(",") == ["PATH", *CACHES]  # also to the workers that Ray starts


def test_nothing_of_a_gpu_is_said_to_a_cpu_engine(tmp_path: Path) -> None:
    assert not {"VLLM_USE_FLASHINFER_SAMPLER", COPIED} & environment(tmp_path).keys()
