"""What a model's files say about its chats, wherever they lie, and the parsers that follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from deployments.engine.deployment import llm_config, resolve_on_node
from deployments.engine.parsers import chat_files, model_parsers, with_template
from serve_app.engines import ChatFiles
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

HERMES = "{% if tools %}<tool_call>{% endif %}"
THINKS = "</think>"
LOCAL = Path(__file__).parents[3] / "config/local.yaml"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


def written(folder: Path, **files: Any) -> Path:
    """A model's folder; a file's name with ``__`` for the dot."""
    folder.mkdir(parents=True)
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    for name, value in ({"config__json": config} | files).items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def read(folder: Path) -> ChatFiles | None:
    return chat_files(str(folder), None, ModelStore(folder / "store"))


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template__jinja": HERMES},
        {"tokenizer_config__json": {"chat_template": HERMES}},
        {"tokenizer_config__json": {"chat_template": [{"name": "tool_use", "template": HERMES}]}},
        {"chat_template__json": {"chat_template": HERMES}},
    ],
    ids=["own file", "in the tokenizer's", "several", "the processor's"],
)
def test_the_template_is_found_wherever_it_lies(tmp_path: Path, files: dict[str, Any]) -> None:
    found = read(written(tmp_path / "m", **files))
    assert found == ChatFiles(str(tmp_path / "m"), frozenset({"qwen3", "Qwen3ForCausalLM"}), HERMES)


def test_no_template_and_one_that_was_not_read_are_told_apart(tmp_path: Path) -> None:
    found = read(written(tmp_path / "none", tokenizer_config__json={}))
    assert found is not None
    assert found.template == ""
    mistral = read(written(tmp_path / "mistral", tokenizer_config__json={}, tekken__json="{}"))
    assert mistral is not None
    assert mistral.template is None


@pytest.mark.parametrize("config", ["", "{", "[]", '"x"'])
def test_broken_files_are_not_read_and_never_raise(tmp_path: Path, config: str) -> None:
    assert read(written(tmp_path / "m", config__json=config)) is None
    assert chat_files("no/such", None, ModelStore(tmp_path)) is None
    assert chat_files("/no/such/folder", None, ModelStore(tmp_path)) is None


def test_a_template_in_the_options_goes_before_the_models(tmp_path: Path) -> None:
    files = read(written(tmp_path / "m", chat_template__jinja=HERMES))
    inline = with_template(files, "{{ messages }}")
    assert inline is not None
    assert inline.template == "{{ messages }}"
    (tmp_path / "other.jinja").write_text(THINKS)
    by_path = with_template(files, str(tmp_path / "other.jinja"))
    assert by_path is not None
    assert by_path.template == THINKS
    assert with_template(files, None) == files


def model(source: str, **engine: Any) -> ModelSettings:
    return ModelSettings.model_validate({"id": "m", "source": source, "engine": engine})


def test_the_replica_decides_by_the_files_on_its_node(tmp_path: Path) -> None:
    """The head that built the graph had not the model's files."""
    chosen = model("owner/m")
    config = llm_config(chosen, ModelStore(tmp_path / "head"))
    engine = config.get_engine_config()
    assert engine is not None
    assert "tool_call_parser" not in engine.frontend_kwargs
    here = ModelStore(tmp_path / "worker")
    written(here.folder("owner/m"), chat_template__jinja=HERMES + THINKS)
    resolve_on_node(config, chosen, here)
    again = config.get_engine_config()
    assert again is not None
    assert again.frontend_kwargs["enable_auto_tool_choice"] is True
    assert again.frontend_kwargs["tool_call_parser"] == "hermes"
    assert again.engine_kwargs["reasoning_parser"] == "qwen3"
    assert "tool_call_parser" not in again.engine_kwargs


def test_both_say_the_same_where_both_have_the_files(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    written(store.folder("owner/m"), chat_template__jinja=HERMES)
    chosen = model("owner/m", reasoning="off")
    assert llm_config(chosen, store).engine_kwargs["tool_call_parser"] == "hermes"
    assert model_parsers(chosen, store).reasoning.parser is None


CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi\nthere"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ],
]


def local_template() -> str:
    args = yaml.safe_load(LOCAL.read_text())["applications"][0]["args"]
    template: str = args["models"][0]["engine"]["options"]["chat_template"]
    return template


def rendered(template: str, messages: list[dict[str, Any]], **values: Any) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.filters["tojson"] = json.dumps
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **values)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_local_configs_template_is_the_models_own_without_tools(
    messages: list[dict[str, Any]], prepared_models: ModelStore
) -> None:
    own = (prepared_models.folder(SMOLLM2) / "chat_template.jinja").read_text()
    assert rendered(local_template(), messages) == rendered(own, messages)


def test_the_local_configs_template_shows_tools_calls_and_results() -> None:
    call = {"function": {"name": "look", "arguments": {"at": "x"}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "a tree", "tool_call_id": "1"},
    ]
    text = rendered(local_template(), messages, tools=[{"type": "function", "function": {"name": "look"}}])
    system, user, assistant, result, begun = text.split("<|im_start|>")[1:]
    assert system.startswith("system\nBe brief.\n\nYou may call these functions:\n<tools>\n{")
    assert user == "user\nlook<|im_end|>\n"
    shown = '\n<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>'
    assert assistant == f"assistant\n{shown}<|im_end|>\n"
    assert result == "user\n<tool_response>\na tree\n</tool_response><|im_end|>\n"
    assert begun == "assistant\n"
