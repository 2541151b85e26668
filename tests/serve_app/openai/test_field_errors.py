"""vLLM tells wrong fields in lines of Python; clients get sentences."""

from __future__ import annotations

import json

import pytest

from serve_app.openai.field_errors import MOST_FIELDS, plainly_told
from serve_app.openai.upstream_errors import normalise_error

NO_PROMPT = (
    "2 validation errors:\n"
    "  {'type': 'string_type', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'prompt'), "
    "'msg': 'Input should be a valid string', 'input': None}\n"
    "  {'type': 'missing', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'messages'), "
    "'msg': 'Field required', 'input': {'prompt': None}}"
)


def wrong(place: str, said: str, given: object = None, kind: str = "list_type") -> str:
    return (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': ({place}), 'msg': {said!r}, 'input': {given!r}}}"
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            NO_PROMPT,
            "Invalid value for `prompt`: expected a valid string. Missing required field `messages`.",
        ),
        (
            wrong("'body', 'tokens'", "Input should be a valid list"),
            "Invalid value for `tokens`: expected a valid array.",
        ),
        (
            wrong("'body', 'logit_bias'", "Input should be a valid dictionary", [1]),
            "Invalid value for `logit_bias`: expected a valid object.",
        ),
        (
            wrong(
                "'body', 'tools', 0", "Input should be a valid dictionary or object to extract fields from", 1
            ),
            "Invalid value for `tools[0]`: expected a valid object.",
        ),
        (
            wrong("'body', 'stop', 'list[str]', 0", "Input should be a valid string", {}),
            "Invalid value for `stop[0]`: expected a valid string.",
        ),
        (
            wrong("'body', 'a'", 'Value error, it\'s a "list"', "x\ny", "value_error"),
            'Invalid value for `a`: it\'s a "list".',
        ),
        ("1 validation error: another form", "1 validation error: another form"),
        ("The model `x` does not exist.", "The model `x` does not exist."),
    ],
)
def test_each_wrong_field_is_a_sentence_in_jsons_words(message: str, told: str) -> None:
    assert plainly_told(message) == told


def test_a_field_of_many_forms_is_told_once_for_each_and_not_without_end() -> None:
    line = wrong("'body', 'stop'", "Input should be a valid string").partition("\n")[2]
    assert plainly_told("2 validation errors:\n" + f"{line}\n{line}").count("stop") == 1
    lines = "\n".join(line.replace("stop", f"f{number}") for number in range(40))
    assert plainly_told("40 validation errors:\n" + lines).count("Invalid") == MOST_FIELDS


def test_a_client_gets_the_sentence() -> None:
    body = json.dumps({"error": {"message": NO_PROMPT, "param": "body.prompt", "code": 400}}).encode()
    error = normalise_error(400, body)
    assert error.message == plainly_told(NO_PROMPT)
    assert error.param == "prompt"


def test_only_the_beginning_of_an_endless_message_is_read() -> None:
    """vLLM tells each wrong item of a list; a client may send very many."""
    line = "\n  {'type': 'int_type', 'loc': ('body', 'stop_token_ids', %d), 'msg': 'No integer', 'input': ''}"
    told = plainly_told("2 validation errors:" + "".join(line % number for number in range(200_000)))
    assert told.count("Invalid value for") == MOST_FIELDS
    same = "2 validation errors:" + line % 0 * 200_000
    assert plainly_told(same) == "Invalid value for `stop_token_ids[0]`: No integer."


def test_escapes_that_python_does_not_know_stay_as_they_are() -> None:
    message = r"1 validation error:\n  {'type': 'x', 'loc': ('body', 'a'), 'msg': '\x', 'input': 1}"
    assert plainly_told(message.replace(r"\n", "\n")) == r"Invalid value for `a`: \x."
