"""What a plan may be asked for over HTTP."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.planning.question import parse_question


def test_nothing_asked_is_the_plan_without_a_load() -> None:
    question = parse_question({})
    assert (question.device, question.demand.load, question.demand.price) == (None, None, None)
    assert (question.demand.target.ttft_s, question.demand.target.tpot_s) == (1.0, 0.1)


def test_a_load_and_a_target_are_those_of_the_command() -> None:
    asked = {
        "rate": "4",
        "output_tokens": "50",
        "ttft_ms": "500",
        "price": "2.5",
        "device": "L4",
        "tpot_ms": " ",
    }
    question = parse_question(asked)
    load = question.demand.load
    assert load is not None
    assert (load.rate, load.prompt_tokens, load.output_tokens) == (4.0, 1000.0, 50.0)
    assert (question.demand.target.ttft_s, question.demand.target.tpot_s) == (0.5, 0.1)
    assert (question.demand.price, question.device) == (2.5, "L4")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", "0"),
        ("rate", "1e9"),
        ("rate", "nan"),
        ("price", "-1"),
        ("ttft_ms", "soon"),
        ("tpot_ms", "inf"),
    ],
)
def test_a_number_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadRequest, match=f"`{name}` is '{value}'; expected a number above 0") as refused:
        parse_question({name: value})
    assert refused.value.param == name


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadRequest, match="Unknown query parameter 'gpus'; known: device, rate, "):
        parse_question({"gpus": "8"})
