"""Every error has one status, the one drawn in the module's docstring, and a body of OpenAI's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
import pytest

from serve_app import errors
from serve_app.errors import ErrorDetails, PromptlyError

ENGINES_OWN = ErrorDetails("no such thing", "invalid_request_error", "n", "x")

EXAMPLES: tuple[PromptlyError, ...] = (
    errors.BadRequest("wrong", param="n", code="invalid_value"),
    errors.EmbedderOnly("minilm"),
    errors.GuardRefused("the guardrail 'x' refused this", code="guardrail_refused"),
    errors.GuardUnavailable("the guardrail 'x' could not judge this"),
    errors.Unauthorized("who?", code="missing_api_key"),
    errors.UnknownHost("evil.example"),
    errors.OriginNotAllowed("https://evil.example"),
    errors.UnsupportedMediaType("text/plain", ("application/json",)),
    errors.PackedBody("gzip"),
    errors.Forbidden("no", code="admin_only"),
    errors.NotFound("gone"),
    errors.UnknownModel("x", ["a", "b"]),
    errors.MethodNotAllowed("GET", "/v1/chat/completions", "POST"),
    errors.BodyTimeout(60.0, 10),
    errors.HeaderTimeout(10),
    errors.SlowReader(65_536),
    errors.SessionTimeout("silent", code="idle_timeout"),
    errors.UpgradeRequired("/v1/realtime"),
    errors.BodyTooLarge(1024),
    errors.Quarantined(7),
    errors.OverCapacity("busy", 7),
    errors.RateLimited("This API key: requests_per_minute is limited to 3.", 7),
    errors.BudgetSpent("This tenant: tokens_per_day is limited to 3.", 7000),
    errors.BudgetEnded("This tenant: tokens_per_day is limited to 3."),
    errors.UpstreamFailed("broke"),
    errors.NoReplica("none"),
    errors.CacheUnavailable("down"),
    errors.OwnerUnavailable("It is away.", "owner_unavailable", "away", is_final=False),
    errors.AccountsUnavailable("their owner is away"),
    errors.Conflict("changed", code="version_conflict"),
    errors.FeedbackUnavailable("its owner is away"),
    errors.SignInUnavailable("no answer"),
    errors.LimitsUnavailable("their owner is away"),
    errors.ResponsesUnavailable("it is away"),
    errors.UploadsUnavailable("No space left on device"),
    errors.UpstreamTimeout(120.0),
    errors.DeadlineExceeded(1.5),
)

PASSED_ON: tuple[PromptlyError, ...] = (
    errors.UpstreamRefused(429, ENGINES_OWN, {"retry-after": "3"}),
    errors.EngineError(ENGINES_OWN),
)
"""Errors whose body is the engine's own."""


def subclasses(kind: type[PromptlyError]) -> Iterator[type[PromptlyError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from subclasses(child)


def drawn_statuses() -> dict[str, str]:
    """Name and status of every leaf in the docstring's tree."""
    return dict(re.findall(r"[├└]── (\w+) +(\d{3}|4xx)\b", errors.__doc__ or ""))


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    statuses = {kind.__name__: str(kind.status) for kind in subclasses(PromptlyError)}
    assert drawn_statuses() == statuses | {"UpstreamRefused": "4xx"}


def test_every_error_has_an_example_above() -> None:
    assert {type(example) for example in EXAMPLES + PASSED_ON} == set(subclasses(PromptlyError))


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


@pytest.mark.parametrize("example", PASSED_ON, ids=lambda example: type(example).__name__)
def test_an_engines_own_error_is_passed_on_as_it_is(example: PromptlyError) -> None:
    assert example.details == ENGINES_OWN
    assert msgspec.json.decode(example.body())["error"] == msgspec.to_builtins(ENGINES_OWN)
    assert ENGINES_OWN.message not in str(example)


@pytest.mark.parametrize("status", [400, 404, 422, 429])
def test_a_refusal_keeps_the_engines_status(status: int) -> None:
    refusal = errors.UpstreamRefused(status, ENGINES_OWN)
    assert refusal.status == status
    assert str(status) in refusal.message
    assert errors.UpstreamRefused(418, ENGINES_OWN).status != refusal.status


def test_an_engines_failure_is_one_of_the_upstreams() -> None:
    """Code that catches it also catches the engines' own 5xx."""
    assert isinstance(errors.EngineError(ENGINES_OWN), errors.UpstreamFailed)
    assert errors.EngineError(ENGINES_OWN).status == 502


@pytest.mark.parametrize("message", ['say "hi"', "back\\slash", "Größe 東京\u3000👍"])
def test_any_message_survives_the_body(message: str) -> None:
    assert json.loads(errors.BadRequest(message).body())["error"]["message"] == message


@pytest.mark.parametrize(
    ("name", "shown"), [("get\nweather", "get\\nweather"), ("a\x00b", "a\\x00b"), ("a\u2028b", "a\\u2028b")]
)
def test_a_message_that_names_what_a_client_sent_stays_on_one_line(name: str, shown: str) -> None:
    error = errors.BadRequest(f"`{name}` is no tool.")
    assert json.loads(error.body())["error"]["message"] == f"`{shown}` is no tool."


@pytest.mark.parametrize(
    ("example", "headers"),
    [
        (errors.Unauthorized("who?"), {"www-authenticate": "Bearer"}),
        (errors.MethodNotAllowed("GET", "/x", "DELETE, POST"), {"allow": "DELETE, POST"}),
        (errors.OverCapacity("busy", 7), {"retry-after": "7"}),
        (errors.Quarantined(7), {"retry-after": "7"}),
        (errors.NoReplica("none"), {"retry-after": "1"}),
        (errors.UpstreamRefused(429, ENGINES_OWN, {"retry-after": "3"}), {"retry-after": "3"}),
        (errors.UpstreamRefused(400, ENGINES_OWN), {}),
        (errors.EngineError(ENGINES_OWN), {}),
        (errors.BadRequest("wrong"), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_brings_its_own_headers(example: PromptlyError, headers: dict[str, str]) -> None:
    assert example.headers == headers


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (errors.DeadlineExceeded(0.7), False),
        (errors.UpstreamTimeout(30), False),
        (errors.Quarantined(7), False),
        (errors.OverCapacity("busy", 60), True),
        (errors.OverCapacity("busy", 61), False),
        (errors.UpstreamFailed("broke"), None),
        (errors.NoReplica("none"), None),
        (errors.BadRequest("wrong"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_clients_are_told_whether_to_try_again(example: PromptlyError, expected: bool | None) -> None:
    assert example.should_retry is expected


def test_an_unknown_model_lists_the_known_ones() -> None:
    error = errors.UnknownModel("gtp-4", ["llama", "smollm2"])
    assert error.message == "The model 'gtp-4' does not exist. Known models: llama, smollm2."
    assert (error.param, error.code) == ("model", "model_not_found")


def test_an_unknown_model_says_so_where_none_is_known() -> None:
    assert errors.UnknownModel("x", []).message.endswith("Known models: none.")


@pytest.mark.parametrize(
    ("example", "limit"),
    [
        (errors.BodyTooLarge(1024), "1024 bytes (limits.max_body_bytes)"),
        (errors.SlowReader(65_536), "65536 bytes ahead of its reader (limits.max_stream_buffer_bytes)"),
        (errors.UpstreamTimeout(120.0), "within 120 s (limits.first_token_timeout_s)"),
        (errors.UpstreamTimeout(0.05), "within 0.05 s (limits.first_token_timeout_s)"),
        (errors.DeadlineExceeded(1.5), "within 1.5 s (x-request-timeout-ms)"),
        (errors.BodyTimeout(60.0, 10), "10 bytes in 60.0 s"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_limit_that_was_passed_is_named_with_its_setting(example: PromptlyError, limit: str) -> None:
    assert limit in example.message


def test_a_settings_error_never_answers_a_request() -> None:
    assert not issubclass(errors.SettingsError, PromptlyError)
