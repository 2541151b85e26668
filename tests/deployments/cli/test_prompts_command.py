"""``promptly prompts``: list, diff, promote and rollback, on the files alone."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
import yaml
from test_check_command import config

from deployments.cli.main import main
from deployments.platform.prompt_folder import located
from serve_app.settings import parse_args

V1 = "---\nvariables: {name: null, tone: friendly}\n---\nAnswer {{name}} in a {{tone}} way.\n"
V2 = "---\nvariables: [name]\n---\nAnswer {{name}} at length.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reply").mkdir()
    (tmp_path / "reply" / "1.md").write_text(V1)
    (tmp_path / "reply" / "2.md").write_text(V2)
    (tmp_path / "reply" / "prompt.yaml").write_text("tenants: [acme]")
    return tmp_path


def prompts(folder: Path, *arguments: str) -> int:
    return main(["prompts", arguments[0], "--folder", str(folder), *arguments[1:]])


def production(folder: Path) -> str:
    labels = yaml.safe_load((folder / "labels.yaml").read_text())["labels"]
    version: str = labels["reply"]["production"]
    return version


def test_the_list_shows_versions_labels_and_tenants(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prompts(folder, "promote", "reply", "1") == 0
    assert capsys.readouterr().out == "reply: production is 1, was nothing\n"
    assert prompts(folder, "list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "reply  production=1  tenants: acme",
        "  1  variables: name, tone  messages: 1",
        "  2  variables: name  messages: 1",
    ]
    assert prompts(folder, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["prompts"][0]["labels"] == {"production": "1"}


def test_the_difference_of_two_versions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts(folder, "promote", "reply", "1")
    capsys.readouterr()
    assert prompts(folder, "diff", "reply", "production", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- reply@1", "+++ reply@2"]
    assert "-variable tone = 'friendly'" in lines
    assert "-Answer {{name}} in a {{tone}} way." in lines
    assert "+Answer {{name}} at length." in lines


def test_rolling_back_uses_the_history(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("1", "2"):
        assert prompts(folder, "promote", "reply", version) == 0
    assert production(folder) == "2"
    assert prompts(folder, "rollback", "reply") == 0
    assert production(folder) == "1"
    assert prompts(folder, "rollback", "reply") == 1
    assert "no former version" in capsys.readouterr().err
    assert production(folder) == "1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("promote", "reply", "9"), "no version or label '9'"),
        (("promote", "none", "1"), "no such prompt; known: reply"),
        (("promote", "reply", "1", "--label", "a b"), "expected a label"),
        (("diff", "reply", "1", "x"), "no version or label 'x'"),
        (("rollback", "reply", "--label", "next"), "no former version"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: tuple[str, ...], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompts(folder, *arguments) == 1
    assert says in capsys.readouterr().err
    assert not (folder / "labels.yaml").exists()


def test_a_label_file_that_cannot_be_written_stays_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts(folder, "promote", "reply", "1")
    before = (folder / "labels.yaml").read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert prompts(folder, "promote", "reply", "2") == 1
    assert "No space" in capsys.readouterr().err
    assert (folder / "labels.yaml").read_text() == before
    assert {path.name for path in folder.iterdir()} == {"reply", "labels.yaml", ".labels.lock"}


def test_an_empty_label_file_is_one_that_is_being_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "labels.yaml").write_text("")
    assert prompts(folder, "promote", "reply", "2") == 1
    assert "labels.yaml: expected a file that is not empty" in capsys.readouterr().err
    assert (folder / "labels.yaml").read_text() == ""


def test_many_at_once_lose_nothing(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        done = pool.starmap(
            prompts, [(folder, "promote", "reply", "1", "--label", f"l{n}") for n in range(12)]
        )
    assert done == [0] * 12
    assert len(yaml.safe_load((folder / "labels.yaml").read_text())["labels"]["reply"]) == 12


def test_gateways_are_told_where_the_folder_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    models = [{"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:1/v1"}]}]
    settings = parse_args({"models": models, "prompts": {"folder": folder.name}}, source="test")
    moved = located(settings).prompts
    assert moved is not None
    assert moved.folder == str(folder)
    without = parse_args({"models": models}, source="test")
    assert located(without) is without


def test_the_config_file_names_the_folder_and_is_checked(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path_factory.mktemp("config"), prompts={"folder": str(folder)})
    assert main(["prompts", "list", "--config", str(file)]) == 0
    assert "reply" in capsys.readouterr().out
    assert main(["check", str(file)]) == 0
    (folder / "reply" / "2.md").write_text("{{who}}")
    capsys.readouterr()
    assert main(["check", str(file)]) == 1
    assert "reply/2.md" in capsys.readouterr().err
    assert main(["prompts", "list", "--config", str(file)]) == 1
    missing = config(tmp_path_factory.mktemp("other"), prompts={"folder": "/nowhere/at/all"})
    assert main(["check", str(missing)]) == 1
    assert "prompts.folder" in capsys.readouterr().err
