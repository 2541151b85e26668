"""A model is loaded from its prepared folder where there is one, and else by its hub id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.model_store import ModelStore

ROOT = Path(__file__).parents[2]


def default_cache_dir_with(environment: dict[str, str]) -> Path:
    """The default in a process with this environment and no other variable."""
    code = "from serve_app.model_store import default_cache_dir; print(default_cache_dir())"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return Path(ran.stdout.strip())


def test_a_source_that_was_not_prepared_is_left_to_the_hub(tmp_path: Path) -> None:
    assert ModelStore(tmp_path).resolve("owner/name") == "owner/name"


def test_a_prepared_source_is_its_folder(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    store.folder("owner/name").mkdir(parents=True)
    assert store.resolve("owner/name") == str(tmp_path / "models" / "owner--name")
    assert store.resolve("owner/other") == "owner/other"


def test_a_file_in_the_place_of_the_folder_is_not_the_model(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    store.folder("owner/name").parent.mkdir()
    store.folder("owner/name").write_text("")
    assert store.resolve("owner/name") == "owner/name"


@pytest.mark.parametrize("source", ["owner/name", "/srv/models/name", "name", "../../etc", "a/b/c"])
def test_a_folder_lies_directly_in_the_stores_models_folder(tmp_path: Path, source: str) -> None:
    assert ModelStore(tmp_path).folder(source).parent == tmp_path / "models"


def test_a_source_that_is_a_folder_of_its_own_is_left_alone(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    assert ModelStore(tmp_path / "cache").resolve(str(weights)) == str(weights)


def test_the_cache_folder_comes_from_the_environment(tmp_path: Path) -> None:
    assert default_cache_dir_with({"PROMPTLY_CACHE": str(tmp_path), "HOME": "/h"}) == tmp_path


def test_the_cache_folder_is_in_the_home_folder_by_default(tmp_path: Path) -> None:
    assert default_cache_dir_with({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "promptly"
