"""The environment of an engine's processes: what is compiled outlives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployments.engine.start.environment import engine_environment
from serve_app.model_store import ModelStore
from serve_app.settings import EngineSettings, ModelSettings

CACHES = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def environment(folder: Path, **engine: Any) -> dict[str, str]:
    settings = EngineSettings(**({"accelerator": "cpu"} | engine))
    return engine_environment(ModelSettings(id="m", source="s", engine=settings), ModelStore(folder))


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
