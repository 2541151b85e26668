"""What a model's files say, read from folders and from a hub that may not answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import model_configs as configs

from deployments.engine.model_files import ModelLibrary, SourceError
from deployments.launcher.ports import free_port
from serve_app.model_store import ModelStore

CONFIG_PATH = "/owner/m/resolve/main/config.json"
INDEX_PATH = "/owner/m/resolve/main/model.safetensors.index.json"
INFO_PATH = "/api/models/owner/m"
TENSORS = {"a": ("BF16", [10, 20]), "b": ("F32", [7])}


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    return ModelLibrary(ModelStore(tmp_path / "cache"), offline=True)


def test_headers_give_bytes_and_values_per_type(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M, TENSORS)
    files = library.read(str(folder))

    assert files.config["num_hidden_layers"] == 30
    assert files.weights is not None
    assert files.weights.total_bytes == 10 * 20 * 2 + 7 * 4
    assert files.weights.values == (("BF16", 200), ("F32", 7))


def test_a_folder_in_the_store_goes_before_the_hub(tmp_path: Path, library: ModelLibrary) -> None:
    configs.write_model(tmp_path / "cache" / "models" / "owner--m", configs.SMOLLM2_135M)
    files = library.read("owner/m")
    assert files.config["vocab_size"] == 49152
    assert files.weights is None


def test_all_files_of_an_index_are_read(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M)
    for name in ("one", "two", "stray"):
        configs.write_safetensors(folder / f"{name}.safetensors", TENSORS)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    files = library.read(str(folder))
    assert files.weights is not None
    assert files.weights.total_bytes == 2 * (400 + 28)


def test_a_file_that_the_index_names_and_is_missing_is_said(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M)
    index = {"weight_map": {"a": "gone.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(SourceError, match=r"gone\.safetensors is missing"):
        library.read(str(folder))


def test_the_same_weights_in_a_second_layout_count_once(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M, TENSORS)
    configs.write_safetensors(folder / "consolidated.safetensors", TENSORS)
    files = library.read(str(folder))
    assert files.weights is not None
    assert files.weights.total_bytes == 400 + 28


def test_a_cut_file_is_found_by_its_length(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M, TENSORS)
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(SourceError, match="its header says") as raised:
        library.read(str(folder))
    assert "prepare the model again" in raised.value.works


@pytest.mark.parametrize("content", [b"", b"\x05\x00", b"\xff" * 64, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_what_is_no_safetensors_file_is_said(tmp_path: Path, library: ModelLibrary, content: bytes) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(SourceError, match=r"model\.safetensors"):
        library.read(str(folder))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_config_that_is_no_json_object_is_said(tmp_path: Path, library: ModelLibrary, text: str) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M)
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match="JSON"):
        library.read(str(folder))


def test_a_folder_without_a_config_is_said(tmp_path: Path, library: ModelLibrary) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(SourceError, match=r"config\.json is missing"):
        library.read(str(tmp_path / "m"))


@pytest.mark.parametrize("source", ["/nowhere/m", "./m", "~/nowhere/m", "a/b/c", "m.gguf"])
def test_a_path_that_is_no_folder_is_not_asked_of_the_hub(library: ModelLibrary, source: str) -> None:
    with pytest.raises(SourceError, match="no such folder") as raised:
        library.read(source)
    assert not raised.value.is_remote


def test_a_hub_that_does_not_answer_is_said_with_what_to_do(tmp_path: Path) -> None:
    nobody = ModelLibrary(ModelStore(tmp_path), endpoint=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(SourceError, match="the hub cannot be reached") as raised:
        nobody.read("promptly-tests/no-such-model-anywhere")
    assert raised.value.is_remote
    assert "HF_ENDPOINT" in raised.value.works


class Hub:
    """A hub that has these paths, as JSON, and answers 404 to all others as the hub does."""

    def __init__(self, answers: dict[str, Any], status: tuple[int, str] = (404, "RepoNotFound")) -> None:
        hub = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                hub.asked.append(path)
                found = answers.get(path)
                code = status[1] if not path.endswith(".json") else "EntryNotFound"
                self.send_response(200 if found is not None else status[0])
                if found is None:
                    self.send_header("X-Error-Code", code)
                body = json.dumps({"error": "none"} if found is None else found).encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def library(self, folder: Path) -> ModelLibrary:
        return ModelLibrary(ModelStore(folder), endpoint=f"http://127.0.0.1:{self._server.server_port}")


def test_the_hub_is_asked_for_the_config_and_its_counts_alone(tmp_path: Path) -> None:
    info = {"id": "owner/m", "safetensors": {"parameters": {"BF16": 1000, "F32": 10}, "total": 1010}}
    with Hub({INFO_PATH: info, CONFIG_PATH: configs.SMOLLM2_135M}) as hub:
        files = hub.library(tmp_path).read("owner/m")
    assert files.config == configs.SMOLLM2_135M
    assert files.weights is not None
    assert files.weights.total_bytes == 2040
    assert hub.asked == [INFO_PATH, CONFIG_PATH]


def test_without_counts_the_index_says_the_size(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 5000}, "weight_map": {}}
    answers = {INFO_PATH: {"id": "owner/m"}, CONFIG_PATH: configs.SMOLLM2_135M}
    with Hub(answers | {INDEX_PATH: index}) as hub:
        files = hub.library(tmp_path).read("owner/m")
    assert files.weights is not None
    assert files.weights.total_bytes == 5000
    with Hub(answers) as hub:
        assert hub.library(tmp_path).read("owner/m").weights is None


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ({}, (404, "RepoNotFound"), "the hub has no such model"),
        ({}, (403, "GatedRepo"), "this model needs permission"),
        ({}, (404, "RevisionNotFound"), "no revision None of it"),
        ({}, (500, ""), "the hub cannot be reached"),
        ({INFO_PATH: {"id": "owner/m"}}, (404, ""), "the repository has no config.json"),
        ({INFO_PATH: {"id": "owner/m"}, CONFIG_PATH: []}, (404, ""), "not a JSON object"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words(
    tmp_path: Path, answers: dict[str, Any], status: tuple[int, str], said: str
) -> None:
    with Hub(answers, status) as hub, pytest.raises(SourceError, match=said):
        hub.library(tmp_path).read("owner/m")


def test_a_vocabulary_is_read_when_it_is_asked_for(tmp_path: Path, library: ModelLibrary) -> None:
    folder = configs.write_model(tmp_path / "m", configs.SMOLLM2_135M)
    assert library.read(str(folder), vocabulary=True).vocabulary == {}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"x": 0}}}), encoding="utf-8")
    assert library.read(str(folder), vocabulary=True).vocabulary == {"x": 0}
    assert library.read(str(folder)).vocabulary == {}


def test_the_prepared_model_has_as_many_bytes_as_its_file(prepared_models: ModelStore) -> None:
    source = "HuggingFaceTB/SmolLM2-135M-Instruct"
    files = ModelLibrary(prepared_models, offline=True).read(source)
    path = prepared_models.folder(source) / "model.safetensors"
    assert files.weights is not None
    assert path.stat().st_size - 100_000 < files.weights.total_bytes < path.stat().st_size
    assert files.weights.total_bytes == 2 * 134_515_008
