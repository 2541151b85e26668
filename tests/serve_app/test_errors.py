"""Every error has one status, the one drawn in the module's docstring, and a body of OpenAI's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from serve_app import errors
from serve_app.errors import PromptlyError

EXAMPLES: tuple[PromptlyError, ...] = (
    errors.BadRequest("wrong", param="n", code="invalid_value"),
    errors.Unauthorized("who?", code="missing_api_key"),
    errors.Forbidden("no", code="admin_only"),
    errors.NotFound("gone"),
    errors.UnknownModel("x", ["a", "b"]),
    errors.MethodNotAllowed("GET", "/v1/chat/completions", "POST"),
    errors.BodyTimeout(60.0),
    errors.BodyTooLarge(1024),
    errors.OverCapacity("busy", 7),
    errors.UpstreamFailed("broke"),
    errors.NoReplica("none"),
    errors.CacheUnavailable("down"),
    errors.DeadlineExceeded(1.5),
)


def subclasses(kind: type[PromptlyError]) -> Iterator[type[PromptlyError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from subclasses(child)


def drawn_statuses() -> dict[str, int]:
    """Name and status of every leaf in the docstring's tree."""
    tree = re.findall(r"[├└]── (\w+) +(\d{3})\b", errors.__doc__ or "")
    return {name: int(status) for name, status in tree}


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert drawn_statuses() == {kind.__name__: kind.status for kind in subclasses(PromptlyError)}


def test_every_error_has_an_example_below() -> None:
    assert {type(example) for example in EXAMPLES} == set(subclasses(PromptlyError))


def test_an_error_without_a_class_of_its_own_is_an_internal_error() -> None:
    assert (PromptlyError.status, PromptlyError.type) == (500, "internal_error")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_body_has_openais_shape(example: PromptlyError) -> None:
    error = json.loads(example.body())
    assert error == {
        "error": {
            "message": str(example),
            "type": example.type,
            "param": example.param,
            "code": example.code,
        }
    }
    assert str(example)
    assert example.type.endswith("_error")


@pytest.mark.parametrize("message", ['say "hi"', "back\\slash", "two\nlines", "Größe 東京 👍", "\x00"])
def test_any_message_survives_the_body(message: str) -> None:
    assert json.loads(errors.BadRequest(message).body())["error"]["message"] == message


@pytest.mark.parametrize(
    ("example", "headers"),
    [
        (errors.Unauthorized("who?"), {"www-authenticate": "Bearer"}),
        (errors.MethodNotAllowed("GET", "/x", "DELETE, POST"), {"allow": "DELETE, POST"}),
        (errors.OverCapacity("busy", 7), {"retry-after": "7"}),
        (errors.NoReplica("none"), {"retry-after": "1"}),
        (errors.BadRequest("wrong"), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_brings_its_own_headers(example: PromptlyError, headers: dict[str, str]) -> None:
    assert example.headers == headers


def test_an_unknown_model_lists_the_known_ones() -> None:
    error = errors.UnknownModel("gtp-4", ["llama", "smollm2"])
    assert error.message == "The model 'gtp-4' does not exist. Known models: llama, smollm2."
    assert (error.param, error.code) == ("model", "model_not_found")


def test_an_unknown_model_says_so_where_none_is_known() -> None:
    assert errors.UnknownModel("x", []).message.endswith("Known models: none.")


def test_a_body_that_is_too_large_names_the_limit_and_its_setting() -> None:
    assert "1024 bytes (limits.max_body_bytes)" in errors.BodyTooLarge(1024).message


def test_a_settings_error_never_answers_a_request() -> None:
    assert not issubclass(errors.SettingsError, PromptlyError)
