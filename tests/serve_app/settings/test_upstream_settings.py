"""An external upstream: which URLs are base URLs, what its paths are, how wrong values are named."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import UpstreamSettings, parse_args

AT = "file.yaml: models[0].upstreams[0]"


def upstream(**fields: Any) -> UpstreamSettings:
    known: dict[str, Any] = {"name": "a", "url": "http://host:8000/v1"}
    return UpstreamSettings(**(known | fields))


def message_for(**fields: Any) -> str:
    known: dict[str, Any] = {"name": "a", "url": "http://host:8000/v1"}
    with pytest.raises(SettingsError) as caught:
        parse_args({"models": [{"id": "m", "upstreams": [known | fields]}]}, source="file.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "origin", "api_prefix", "health_target"),
    [
        ("http://host:8000/v1", "http://host:8000", "/v1", "/v1/models"),
        ("http://host:8000/v1/", "http://host:8000", "/v1", "/v1/models"),
        ("http://host:8000", "http://host:8000", "/v1", "/v1/models"),
        ("http://host:8000/", "http://host:8000", "/v1", "/v1/models"),
        ("https://vendor.example/openai/v1", "https://vendor.example", "/openai/v1", "/openai/v1/models"),
        ("https://vendor.example/v1/openai", "https://vendor.example", "/v1/openai", "/v1/openai/models"),
        ("https://vendor.example/v2", "https://vendor.example", "/v2", "/v2/models"),
        ("https://vendor.example/v1/v1", "https://vendor.example", "/v1/v1", "/v1/v1/models"),
        ("HTTPS://vendor.example/v1", "https://vendor.example", "/v1", "/v1/models"),
        ("http://[::1]:8000/v1", "http://[::1]:8000", "/v1", "/v1/models"),
        ("http://10.0.0.5/v1", "http://10.0.0.5", "/v1", "/v1/models"),
        ("http://host/a%20b/v1", "http://host", "/a%20b/v1", "/a%20b/v1/models"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, origin: str, api_prefix: str, health_target: str) -> None:
    found = upstream(url=url)
    assert (found.origin, found.api_prefix, found.health_target) == (origin, api_prefix, health_target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8000/v1",
        "//host/v1",
        "/v1",
        "ftp://host/v1",
        "http://",
        "http:///v1",
        "http://:8000/v1",
        "http://host/v1#top",
        "http://my host/v1",
        " http://host/v1",
        "http://host/v1\n",
        "http://host:0/v1",
    ],
)
def test_anything_but_a_base_url_is_refused_with_an_example(url: str) -> None:
    message = message_for(url=url)
    assert message == f"{AT}.url = {url!r}: expected a base URL such as `http://host:8000/v1`"


def test_a_query_is_refused_and_what_it_holds_is_not_shown() -> None:
    message = message_for(url="http://host/v1?key=s3cr3t")
    assert message.startswith(f"{AT}.url = 'http://host/v1?(hidden)': expected a base URL")


@pytest.mark.parametrize("url", ["http://host:port/v1", "http://host:99999/v1", "http://host:-1/v1"])
def test_a_port_that_is_none_is_refused(url: str) -> None:
    assert message_for(url=url).startswith(f"{AT}.url = {url!r}: Port ")


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://[no]/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert message_for(url=url).startswith(f"{AT}.url = {url!r}: ")


@pytest.mark.parametrize("user", ["sk-secret", "user:sk-secret", ":sk-secret", "sk-secret:"])
def test_a_key_in_a_url_is_refused_and_not_shown(user: str) -> None:
    message = message_for(url=f"https://{user}@host/v1")
    assert message.startswith(f"{AT}.url = 'https://(hidden)@host/v1': a URL holds no key: ")
    assert "key_env" in message


def test_vllm_has_a_health_path_at_its_root() -> None:
    assert upstream(kind="vllm", url="http://host/behind/v1").health_target == "/health"


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_a_health_path_of_its_own_is_taken_as_it_is(kind: Any) -> None:
    found = upstream(kind=kind, url="http://host/behind/v1", health_path="/v1/up?deep=1")
    assert found.health_target == "/v1/up?deep=1"


def test_little_has_to_be_said() -> None:
    found = upstream()
    assert (found.kind, found.key_env, found.model, found.priority) == ("openai", None, None, 0)
    assert (found.weight, found.max_requests, found.health_period_s) == (1.0, 64, 5.0)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("name", "", "expected: String should match pattern"),
        ("name", "two words", "expected: String should match pattern"),
        ("name", "x" * 65, "expected: String should match pattern"),
        ("kind", "tgi", "expected: 'openai' or 'vllm'"),
        ("priority", -1, "expected: greater than or equal to 0"),
        ("priority", "0", "expected: a valid integer"),
        ("weight", 0, "expected: greater than 0"),
        ("max_requests", 0, "expected: greater than or equal to 1"),
        ("health_path", "health", "expected: String should match pattern '^/'"),
        ("health_period_s", 0, "expected: greater than 0"),
        ("urls", "x", "unknown key; did you mean 'url'? expected one of: cache_salt, health_path, "),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, expected: str) -> None:
    assert message_for(**{key: value}).startswith(f"{AT}.{key} = {value!r}"[:70])
    assert expected in message_for(**{key: value})


@pytest.mark.parametrize("key_env", ["sk-proj-1234", "", "1KEY", "A KEY", "$KEY", "KEY\n"])
def test_a_key_in_place_of_its_variables_name_is_refused_and_not_shown(key_env: str) -> None:
    assert message_for(key_env=key_env).startswith(f"{AT}.key_env = (hidden): expected: ")


@pytest.mark.parametrize("missing", ["name", "url"])
def test_name_and_url_are_needed(missing: str) -> None:
    rest = {"name": "a", "url": "http://host/v1"}
    del rest[missing]
    with pytest.raises(SettingsError) as caught:
        parse_args({"models": [{"id": "m", "upstreams": [rest]}]}, source="file.yaml")
    assert str(caught.value) == f"{AT}.{missing} is missing: expected a value"
