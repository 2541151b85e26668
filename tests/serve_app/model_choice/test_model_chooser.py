"""A request gets the own name of the model that answers it, whatever it called that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from samples import chat_request, completion_request, make_report

from serve_app.errors import BadRequest, UnknownModel
from serve_app.fleet import EngineState, FleetTable
from serve_app.model_choice.chooser import ModelChooser, reported_context
from serve_app.openai.continuation import TokenLimits
from serve_app.settings import Settings, parse_args

ENGINE: dict[str, Any] = {"accelerator": "cpu", "lora": {"adapters": {"poet": "/adapters/poet"}}}
SMALL: dict[str, Any] = {
    "id": "small",
    "source": "owner/small",
    "engine": ENGINE,
    "aliases": ["mini", "default"],
}
LARGE: dict[str, Any] = {"id": "large", "source": "owner/large", "engine": {"max_model_len": 32_000}}
AUTO: dict[str, Any] = {"id": "auto", "models": ["default", "large"], "tiers": {"best": ["large"]}}
ARGS: dict[str, Any] = {"models": [SMALL, LARGE], "auto_models": [AUTO]}


def settings(**auto: Any) -> Settings:
    return parse_args(ARGS | {"auto_models": [AUTO | auto]}, source="test")


def chooser(small: int | None = 1_000, large: int | None = None, **auto: Any) -> ModelChooser:
    """With one member of each model, which reports this context."""
    parsed = settings(**auto)
    fleet = FleetTable(dict.fromkeys(("small", "large")))
    for model, context in (("small", small), ("large", large)):
        fleet.learn(make_report(model, model=model, token_limits=TokenLimits(context)), now=0.0)
    return ModelChooser(parsed, fleet)


def chosen(
    chooser: ModelChooser, text: str = "hi", headers: dict[str, str] | None = None, **fields: Any
) -> str:
    request = chat_request(text, **({"model": "auto"} | fields))
    return chooser.choose(request, headers or {}, now=0.0).request.model


@pytest.mark.parametrize(
    ("asked", "answers"),
    [("small", "small"), ("mini", "small"), ("default", "small"), ("poet", "poet"), ("large", "large")],
)
def test_a_name_is_that_of_its_model(asked: str, answers: str) -> None:
    assert chosen(chooser(), model=asked) == answers


def test_what_has_no_other_name_stays_the_very_same_request() -> None:
    request = chat_request(model="large")
    assert chooser().choose(request, {}, 0.0).request is request


def test_the_clients_own_bytes_are_kept() -> None:
    request = chat_request(model="mini", temperature=0)
    renamed = chooser().choose(request, {}, 0.0).request
    assert (renamed.body, renamed.fields, renamed.endpoint) == (
        request.body,
        request.fields,
        request.endpoint,
    )
    assert renamed.generation.temperature == 0


def test_an_unknown_name_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(UnknownModel, match="Known models: small, poet, mini, default, large, auto"):
        chosen(chooser(), model="tiny")


def test_a_longer_prompt_goes_to_the_longer_model() -> None:
    found = chooser()
    assert chosen(found, "word " * 100) == "small"
    assert chosen(found, "word " * 1_000) == "large"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_room_for_the_answer_counts(field: str) -> None:
    assert chosen(chooser(), **{field: 900}) == "small"
    assert chosen(chooser(), **{field: 1_000}) == "large"
    assert chosen(chooser(answer_tokens=1_000)) == "large"
    assert chosen(chooser(answer_tokens=1_000), **{field: 16}) == "small"


def test_text_completions_are_chosen_for_alike() -> None:
    request = completion_request("word " * 1_000, model="auto")
    assert chooser().choose(request, {}, 0.0).request.model == "large"


def test_what_engines_report_goes_before_the_settings() -> None:
    long = "word " * 20_000  # 25,000 tokens by estimate
    assert chosen(chooser(large=None, small=None), long) == "small"  # how long `small` is, is not known
    order = ["large", "small"]
    assert chosen(chooser(small=1_000, models=order, tiers={}), "hi") == "large"
    assert chosen(chooser(small=64_000, large=1_000, models=order, tiers={}), long) == "small"


def test_the_shortest_of_a_models_members_counts() -> None:
    fleet = FleetTable({"m": None})
    for name, context in (("a", 4_096), ("b", None), ("c", 2_048)):
        fleet.learn(make_report(name, token_limits=TokenLimits(context)), now=0.0)
    assert reported_context(fleet.members("m")) == 2_048
    assert reported_context(()) is None


def test_prices_decide_where_there_are_some() -> None:
    dear, cheap = {"input": 2.0, "output": 2.0}, {"input": 1.0, "output": 1.0}
    models = [SMALL | {"cost_per_million_tokens": dear}, LARGE | {"cost_per_million_tokens": cheap}]
    fleet = FleetTable(dict.fromkeys(("small", "large")))
    for model in ("small", "large"):
        fleet.learn(make_report(model, model=model), now=0.0)
    assert chosen(ModelChooser(parse_args(ARGS | {"models": models}, source="test"), fleet)) == "large"


def test_a_model_without_members_is_passed_over() -> None:
    fleet = FleetTable(dict.fromkeys(("small", "large")))
    found = ModelChooser(settings(), fleet)
    assert chosen(found) == "small"  # no model is there: the order decides
    fleet.learn(make_report("l", model="large"), now=0.0)
    assert chosen(found) == "large"
    fleet.learn(make_report("s", model="small", state=EngineState.DRAINING), now=0.0)
    assert chosen(found) == "large"


def test_a_model_at_zero_that_would_answer_is_started_while_another_one_does() -> None:
    fleet = FleetTable(dict.fromkeys(("small", "large")), may_be_empty=["small", "large"])
    found = ModelChooser(settings(), fleet)

    def both(text: str) -> tuple[str, str | None]:
        answer = found.choose(chat_request(text, model="auto"), {}, now=0.0)
        return answer.request.model, answer.to_start

    assert both("hi") == ("small", None)  # the request itself starts one
    fleet.learn(make_report("l", model="large"), now=0.0)
    assert both("hi") == ("large", "small")
    fleet.learn(make_report("s", model="small", token_limits=TokenLimits(1_000)), now=0.0)
    assert both("hi") == ("small", None)
    fleet.update("large", [], now=1.0)
    assert both("hi") == ("small", None)
    assert both("word " * 1_000) == ("large", None)  # too long for what serves: it waits for the start


def test_a_tier_leaves_its_models_only() -> None:
    assert chosen(chooser(), headers={"x-model-tier": "best"}) == "large"
    assert chosen(chooser(tiers={"cheap": ["default"]}), headers={"x-model-tier": " cheap "}) == "small"


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [({"best": ["large"], "fast": ["default"]}, "expected one of: best, fast"), ({}, "'auto' has no tiers")],
)
def test_a_tier_that_there_is_not_is_refused(tiers: dict[str, list[str]], expected: str) -> None:
    with pytest.raises(BadRequest, match=expected) as caught:
        chosen(chooser(tiers=tiers), headers={"x-model-tier": "nope"})
    assert caught.value.param == "x-model-tier"
    assert chosen(chooser(tiers=tiers), headers={"x-model-tier": "nope"}, model="mini") == "small"


def test_an_adapter_may_be_chosen() -> None:
    assert chosen(chooser(models=["poet"], tiers={})) == "poet"


@pytest.fixture
def users_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module with a rule, which is forgotten after the test."""

    def write(body: str) -> str:
        (tmp_path / "users_rule.py").write_text(f"def choose(request, candidates):\n    {body}\n")
        monkeypatch.syspath_prepend(tmp_path)
        return "users_rule:choose"

    yield write
    sys.modules.pop("users_rule", None)


def test_a_users_rule_sees_the_request_and_never_its_key(users_rule: Any) -> None:
    rule = users_rule(
        "assert 'authorization' not in request.headers\n"
        "    assert request.prompt_tokens > 0 and request.answer_tokens == 256\n"
        "    question = request.parsed.generation.messages[-1].content\n"
        "    return candidates[-1 if 'prove' in question else 0].name"
    )
    found = chooser(rule=rule)
    headers = {"authorization": "Bearer secret"}
    assert chosen(found, "say hi", headers) == "small"
    assert chosen(found, "prove it", headers) == "large"


def test_a_users_rule_that_names_no_candidate_is_told_so(users_rule: Any) -> None:
    with pytest.raises(ValueError, match=r"rule 'users_rule:choose' returned 'poet', which is no candidate"):
        chosen(chooser(rule=users_rule("return 'poet'")))
