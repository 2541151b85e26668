"""Wrong settings end in one message: file, key, value, expectation."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from serve_app.errors import SettingsError
from serve_app.settings import KeySettings, check_exposure, load_file, parse_args
from serve_app.settings.load import APPLICATION_KEYS, SERVE_KEYS

VALID: dict[str, Any] = {
    "models": [{"id": "m", "source": "owner/m", "engine": {"accelerator": "cpu"}}],
    "embedder": {"id": "e", "source": "owner/e"},
    "cache": {},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """VALID with one value changed; integers in the path are list positions."""
    args = deepcopy(VALID)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = args
    for parent in parents:
        target = target.setdefault(parent, {}) if isinstance(target, dict) else target[parent]
    target[last] = value
    return args


def message_for(args: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        parse_args(args, source="file.yaml")
    return str(caught.value)


def test_valid_settings_are_frozen() -> None:
    settings = parse_args(VALID, source="file.yaml")
    assert settings.models[0].engine.accelerator == "cpu"
    with pytest.raises(ValueError, match="frozen"):
        settings.auth = "none"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("models.0.engine.dtyp", "x", "models[0].engine.dtyp = 'x': unknown key; did you mean 'dtype'?"),
        ("models.0.engine.max_model_len", -5, "models[0].engine.max_model_len = -5: expected: greater than"),
        (
            "models.0.engine.max_num_seqs",
            "8",
            "models[0].engine.max_num_seqs = '8': expected: a valid integer",
        ),
        (
            "models.0.engine.options",
            {"tensor_parallel_size": 2},
            "`options` may not set tensor_parallel_size",
        ),
        ("models.0.engine.options", {"model": "x"}, "`options` may not set model"),
        ("models.0.engine.accelerator_type", "H100", "`accelerator_type` names a GPU"),
        ("models.0.engine.speculation", {"method": "eagle3", "num_speculative_tokens": 3}, "needs `model`"),
        ("models.0.replicas", 0, "models[0] = {"),
        ("models.0.replicas", "two", "models[0].replicas = 'two': expected: a valid integer"),
        (
            "models.0.replicas",
            {"min": 3, "max": 1},
            "models[0].replicas = {'min': 3, 'max': 1}: `min` (3) is",
        ),
        (
            "models.0.replicas",
            {"min": 1, "mox": 1},
            "models[0].replicas.mox = 1: unknown key; did you mean 'max'?",
        ),
        ("models", [], "`models` is empty"),
        ("cache.threshold", 1.5, "cache.threshold = 1.5: expected: less than or equal to 1"),
        ("cache.store", "redis", "cache.store = 'redis': expected: 'qdrant_edge'"),
        (
            "gateway.routing",
            "random",
            "gateway.routing = 'random': unknown routing policy; expected one of: least_wait, prefix,",
        ),
        ("auth", "nope", "auth = 'nope': expected: 'none' or 'loopback'"),
        ("auth", {}, "auth = {}: give `keys_file`, `keys_env`, `accounts: true`, `oidc`, or several of them"),
        ("embedder", None, "`cache` needs an `embedder`"),
        ("embedder.id", "m", "model id given twice: m"),
        (
            "what",
            1,
            "what = 1: unknown key; expected one of: accounts, alerts, auth, auto_models, cache, embedder,",
        ),
    ],
)
def test_a_wrong_key_is_named_with_its_value_and_what_was_expected(
    path: str, value: Any, expected: str
) -> None:
    message = message_for(changed(path, value))
    assert message.startswith("file.yaml: ")
    assert expected in message
    assert len(message.splitlines()) == 1 or path == "models.0.replicas"


def test_a_missing_key_is_named() -> None:
    args = deepcopy(VALID)
    del args["models"][0]["id"]
    assert message_for(args) == "file.yaml: models[0].id is missing: expected a value"


def test_every_wrong_key_is_reported_at_once() -> None:
    args = changed("models.0.engine.dtyp", "x")
    args["cache"]["ttl_s"] = 0
    assert [line.split(" = ")[0] for line in message_for(args).splitlines()] == [
        "file.yaml: models[0].engine.dtyp",
        "file.yaml: cache.ttl_s",
    ]


def test_a_value_that_may_be_a_secret_is_not_shown() -> None:
    message = message_for(changed("auth", {"keys_fil": "sk-very-secret"}))
    assert "sk-very-secret" not in message
    assert "auth.keys_fil = (hidden)" in message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("models.0.engine.api_key", "sk-very-secret"),
        ("models.0.headers", {"Authorization": "Bearer sk-very-secret"}),
        ("models.0.login", [{"password": "sk-very-secret"}]),
        ("models.0", {"id": "m", "engine": {"env": {"HF_TOKEN": "sk-very-secret"}}}),
        ("models.0.proxy", "https://user:sk-very-secret@host/v1"),
        ("models.0.proxies", ["https://sk-very-secret@host"]),
    ],
)
def test_a_secret_is_hidden_wherever_it_stands_in_a_wrong_value(path: str, value: Any) -> None:
    message = message_for(changed(path, value))
    assert "sk-very" not in message
    assert "(hidden)" in message


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::"])
def test_listening_beyond_this_machine_without_keys_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match="auth: none"):
        check_exposure(parse_args(VALID, source="f"), host, source="f")


@pytest.mark.parametrize("auth", ["none", KeySettings(keys_env="KEYS")])
def test_listening_beyond_this_machine_is_allowed_when_said_or_with_keys(auth: Any) -> None:
    settings = parse_args(VALID, source="f").model_copy(update={"auth": auth})
    check_exposure(settings, "0.0.0.0", source="f")


@pytest.mark.parametrize("http_options", [{"host": "0.0.0.0"}, {"port": 8000}, None])
def test_a_file_is_checked_with_its_own_http_options(tmp_path: Path, http_options: Any) -> None:
    """Serve listens on every interface where a file names no host."""
    path = tmp_path / "config.yaml"
    document = {"http_options": http_options, "applications": [{"args": VALID}]}
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(SettingsError, match=str(path)):
        load_file(path)


@pytest.mark.parametrize(
    "http",
    [
        "x",
        [8000],
        {"port": "eighty"},
        {"port": 0},
        {"port": 65536},
        {"port": True},
        {"host": 1},
        {"host": {}},
    ],
)
def test_http_options_that_serve_could_not_use_are_refused_before_anything_starts(
    tmp_path: Path, http: Any
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"http_options": http, "applications": [{"args": VALID}]}))
    with pytest.raises(SettingsError, match=r"config\.yaml: http_options"):
        load_file(path)


@pytest.mark.parametrize(
    ("limits", "is_read"),
    [
        ("limits: {max_prompts: 3}, limits: {max_n: 1}", False),
        ("limits: {max_n: 2, max_n: 1}", False),
        ("limits: {<<: {max_n: 2, max_prompts: 3}, max_n: 1}", True),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path: Path, limits: str, is_read: bool) -> None:
    """The first one would be gone in silence. A merge is not the same key."""
    path = tmp_path / "config.yaml"
    args = json.dumps(VALID).removesuffix("}") + f", {limits}" + "}"
    path.write_text(f"http_options: {{host: 127.0.0.1}}\napplications:\n- args: {args}\n")
    if is_read:
        assert load_file(path)[0].limits.max_n == 1
        return
    with pytest.raises(SettingsError, match=r"(?s)config\.yaml: '\w+' stands twice.*line 3"):
        load_file(path)


@pytest.mark.parametrize("text", ["", "[1]", "applications: []", "applications: [{}]", "a: [", "\x00"])
def test_a_file_that_is_no_config_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"config\.yaml"):
        load_file(path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"proxy": {"tls_certificate": "x"}}, "proxy: unknown key; expected it under `applications[].args`"),
        ({"auth": {"keys_file": "keys.json"}}, "auth: unknown key; expected it under `applications[].args`"),
        ({"http_optoins": {}}, "http_optoins: unknown key; expected one of: applications, "),
    ],
)
def test_a_section_at_the_top_level_that_serve_would_pass_over_is_refused(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    file = tmp_path / "config.yaml"
    http = {"host": "127.0.0.1"}
    file.write_text(yaml.safe_dump({"http_options": http, "applications": [{"args": VALID}], **change}))
    with pytest.raises(SettingsError, match=re.escape(f"{file}: {expected}")):
        load_file(file)


def test_a_file_is_read_without_the_key_of_an_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VENDOR_KEY", raising=False)
    vendor = {"name": "vendor", "url": "https://vendor.example/v1", "key_env": "VENDOR_KEY"}
    args = {"models": [{"id": "m", "upstreams": [vendor]}]}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [{"args": args}]}))
    (settings,) = load_file(file)
    assert settings.models[0].upstreams[0].key_env == "VENDOR_KEY"


def test_a_section_beside_args_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    application = {"name": "p", "args": VALID, "limits": {"max_n": 1}}
    file.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [application]}))
    expected = "applications[].limits: unknown key; expected it under `applications[].args`"
    with pytest.raises(SettingsError, match=re.escape(expected)):
        load_file(file)


def test_the_keys_of_a_serve_config_are_those_of_the_installed_ray() -> None:
    assert frozenset(ServeDeploySchema.model_fields) == SERVE_KEYS
    assert frozenset(ServeApplicationSchema.model_fields) == APPLICATION_KEYS
