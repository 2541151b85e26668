"""The session that a request names: the first of its names, in this order."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.routing import named_session

OWN = "x-session-id"
HEADERS = {
    OWN: "own",
    "x-claude-code-session-id": "claude",
    "session-id": "codex",
    "session_id": "older codex",
}
FIELDS: dict[str, Any] = {
    "metadata": {"user_id": "user_1_session_2"},
    "prompt_cache_key": "key",
    "conversation": "conv_1",
    "previous_response_id": "resp_1",
}
ORDER = (
    OWN,
    "x-claude-code-session-id",
    "metadata",
    "session-id",
    "session_id",
    "prompt_cache_key",
    "conversation",
)


def test_the_first_name_in_the_order_counts() -> None:
    headers, fields, found = dict(HEADERS), dict(FIELDS), []
    for name in ORDER:
        found.append(named_session(headers, fields, OWN))
        headers.pop(name, None)
        fields.pop(name, None)
    names = ["own", "claude", "user_1_session_2", "codex", "older codex", "key", "conv_1"]
    assert found == names
    assert fields == {"previous_response_id": "resp_1"}, "it is another one at each turn"
    assert named_session(headers, fields, OWN) is None


def test_the_settings_name_the_own_header() -> None:
    assert named_session({"x-mine": "a"}, {}, "x-mine") == "a"
    assert named_session({OWN: "a"}, {}, "x-mine") is None


def test_a_conversation_may_be_an_object() -> None:
    assert named_session({}, {"conversation": {"id": "conv_2"}}, OWN) == "conv_2"


@pytest.mark.parametrize("name", HEADERS)
def test_an_empty_header_names_no_session(name: str) -> None:
    assert named_session({name: ""}, {}, OWN) is None
    assert named_session({name: ""}, {"prompt_cache_key": "key"}, OWN) == "key"


@pytest.mark.parametrize("value", [None, 1, "", [], {}, {"user_id": 1}, {"user_id": None}, {"id": []}, True])
@pytest.mark.parametrize("name", ["metadata", "prompt_cache_key", "conversation"])
def test_what_is_no_name_is_passed_over(name: str, value: Any) -> None:
    assert named_session({}, {name: value}, OWN) is None
