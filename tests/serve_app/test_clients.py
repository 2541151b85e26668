"""What each client is told: whole, in its own formats, and never more than it needs."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml

from serve_app.clients import CLIENTS, KEY_VARIABLE, Api, Target, probe, probe_headers, said

TARGET = Target("http://127.0.0.1:8000", "small/one", "a-key")


def texts(name: str) -> str:
    """All that the client is told."""
    setup = CLIENTS[name].setup(TARGET)
    return "\n".join([*setup.environment.values(), *setup.files.values(), *setup.command])


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_learns_where_with_what_and_for_which_model(name: str) -> None:
    told = texts(name)
    assert TARGET.url in told
    assert TARGET.model in told
    assert TARGET.key in told
    assert "http://127.0.0.1:8000/v1/v1" not in told


@pytest.mark.parametrize("name", CLIENTS)
def test_anthropics_clients_add_v1_themselves_and_openais_do_not(name: str) -> None:
    with_v1 = TARGET.base in texts(name)
    assert with_v1 is (CLIENTS[name].api is not Api.MESSAGES)


@pytest.mark.parametrize("name", CLIENTS)
def test_files_are_in_their_formats(name: str) -> None:
    for place, text in CLIENTS[name].setup(TARGET).files.items():
        if place.endswith(".toml"):
            tomllib.loads(text)
        elif place.endswith((".yaml", ".yml")):
            assert isinstance(yaml.safe_load(text), dict)
        elif place.endswith(".json"):
            json.loads(text)
        elif place.endswith(".py"):
            compile(text, place, "exec")
        else:
            assert place.endswith(".mjs")


@pytest.mark.parametrize("name", ["codex", "opencode", "aider"])
def test_configuration_files_name_the_keys_variable_instead_of_the_key(name: str) -> None:
    setup = CLIENTS[name].setup(TARGET)
    assert all(TARGET.key not in text for text in setup.files.values())
    assert TARGET.key in setup.environment.values()


def test_codex_speaks_responses_by_file_and_by_command_alike() -> None:
    setup = CLIENTS["codex"].setup(TARGET)
    config = tomllib.loads(setup.files["~/.codex/config.toml"])
    provider = config["model_providers"]["promptly"]
    assert config["model_provider"] == "promptly"
    assert config["model"] == TARGET.model
    assert provider["wire_api"] == "responses"
    assert provider["env_key"] == KEY_VARIABLE
    given = tomllib.loads("\n".join(setup.command[2::2]))
    assert given == config


def test_claude_code_uses_the_model_for_all_its_tiers() -> None:
    environment = CLIENTS["claude"].setup(TARGET).environment
    models = {name: value for name, value in environment.items() if name.endswith("_MODEL")}
    assert len(models) == 4
    assert set(models.values()) == {TARGET.model}
    assert environment["ANTHROPIC_API_KEY"] == ""


ANSWERS = {
    Api.CHAT: {"choices": [{"message": {"content": "Hello\n there."}}]},
    Api.MESSAGES: {"content": [{"type": "text", "text": "Hello there."}]},
    Api.RESPONSES: {
        "output": [
            {"type": "reasoning"},
            {"type": "message", "content": [{"type": "output_text", "text": "Hello there."}]},
        ]
    },
}


@pytest.mark.parametrize("api", Api)
def test_the_probe_is_small_and_its_answer_is_read(api: Api) -> None:
    assert probe(api, "m")["model"] == "m"
    assert "a-key" in " ".join(probe_headers(api, "a-key").values())
    assert said(api, ANSWERS[api]) == "Hello there."
    with pytest.raises((KeyError, IndexError, TypeError, AttributeError)):
        said(api, {"error": "x"})
