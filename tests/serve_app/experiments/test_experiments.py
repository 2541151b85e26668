"""Which arm a request gets, what it changes, and when an experiment ends by itself."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.experiments import Asking, Plan
from serve_app.experiments.figures import ArmFigures, ArmWindow, with_others
from serve_app.experiments.plan import place
from serve_app.experiments.stopping import reason_to_stop
from serve_app.settings import parse_args
from serve_app.settings.experiments import ExperimentSettings, StopSettings

SESSIONS = 100_000
ASKING = Asking("tenant", "big", None, "session 1", "request 1")
SMALL = {"name": "small", "percent": 20.0, "model": "small"}


def experiment(**given: Any) -> ExperimentSettings:
    return ExperimentSettings.model_validate({"name": "size", "arms": [SMALL], **given})


def plan(**given: Any) -> Plan:
    return Plan.of([experiment(**given)])


def arms(of: Plan, sessions: int = SESSIONS, unix: float = 0.0, **asking: Any) -> list[str]:
    found = (of.split(replace(ASKING, unit=f"session {n}", **asking), unix, ()) for n in range(sessions))
    return [each.arm for each in found if each is not None]


@pytest.mark.parametrize("percent", [0.0, 20.0])
def test_the_share_of_many_sessions_is_that_of_the_settings(percent: float) -> None:
    counted = Counter(arms(plan(arms=[SMALL | {"percent": percent}])))
    assert abs(counted["small"] / SESSIONS - percent / 100) <= 0.005, counted


def test_several_arms_have_their_shares() -> None:
    three = [SMALL | {"name": name, "percent": share} for name, share in (("a", 10.0), ("b", 30.0))]
    counted = Counter(arms(plan(arms=three)))
    for name, share in (("a", 0.1), ("b", 0.3), ("control", 0.6)):
        assert abs(counted[name] / SESSIONS - share) <= 0.005, counted


def test_another_process_gives_every_session_the_same_arm() -> None:
    code = (
        "from serve_app.experiments.plan import place\n"
        "print([round(place('size', 'tenant', f'session {n}'), 9) for n in range(1000)])"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == str(
        [round(place("size", "tenant", f"session {n}"), 9) for n in range(1000)]
    )


def test_tenants_and_experiments_are_split_independently() -> None:
    half = [SMALL | {"percent": 50.0}]
    one = arms(plan(arms=half), 10_000)
    for other in (arms(plan(arms=half), 10_000, tenant="b"), arms(plan(arms=half, name="x"), 10_000)):
        same = sum(a == b for a, b in zip(one, other, strict=True)) / len(one)
        assert 0.45 < same < 0.55


def test_parts_of_a_unit_cannot_be_shifted_into_one_another() -> None:
    assert place("e", "ab", "c") != place("e", "a", "bc")


def test_a_ramp_grows_and_no_session_changes_back() -> None:
    ramp = [{"at": "2026-12-01T00:00:00Z", "percent": 5.0}, {"at": "2026-12-02T00:00:00Z", "percent": 50.0}]
    two = [SMALL | {"percent": 0.0, "ramp": ramp}, SMALL | {"name": "b", "percent": 10.0}]
    of, day = plan(arms=two), 86_400.0
    start = 1_796_083_200.0  # 2026-12-01T00:00:00Z
    shares = []
    before: set[int] = set()
    others = None
    for unix in (start - 1, start, start + day):
        found = arms(of, 20_000, unix)
        now = {number for number, arm in enumerate(found) if arm == "small"}
        assert before <= now
        before = now
        shares.append(len(now) / len(found))
        own = {number for number, arm in enumerate(found) if arm == "b"}
        assert others in (None, own), "another arm's sessions stay where they are"
        others = own
    assert shares == pytest.approx([0.0, 0.05, 0.5], abs=0.01)


def test_only_what_fits_is_in_the_experiment() -> None:
    of = plan(models=["big"], tenants=["tenant"], prompt="reply", arms=[SMALL | {"percent": 100.0}])
    fitting = replace(ASKING, prompt="reply")
    assert of.split(fitting, 0, ()) is not None
    for other in ({"model": "x"}, {"tenant": "x"}, {"prompt": "x"}, {"prompt": None}):
        assert of.split(replace(fitting, **other), 0, ()) is None


def test_a_stopped_experiment_gives_everybody_the_control() -> None:
    of = plan(arms=[SMALL | {"percent": 100.0}])
    stopped = of.split(ASKING, 0, {"size": "why"})
    assert stopped is not None
    assert (stopped.label, stopped.change) == ("size=control", None)
    shadow = plan(kind="shadow", arms=[SMALL | {"percent": 100.0}])
    assert shadow.shadow(ASKING, 0, ()) is not None
    assert shadow.shadow(ASKING, 0, {"size": "why"}) is None


def test_a_client_chooses_only_where_it_may() -> None:
    half = [SMALL | {"percent": 0.0}]
    for allowed, arm in ((False, "control"), (True, "small")):
        found = plan(arms=half, allow_choice=allowed).split(replace(ASKING, wish="size=small"), 0, ())
        assert found is not None
        assert found.arm == arm
    for wish in ("size=none", "other=small", "size", ""):
        found = plan(arms=half, allow_choice=True).split(replace(ASKING, wish=wish), 0, ())
        assert found is not None
        assert found.arm == "control"


def test_requests_by_themselves_are_split_where_the_setting_says_so() -> None:
    of = plan(unit="request", arms=[SMALL | {"percent": 50.0}])
    found = [of.split(replace(ASKING, request=f"r{n}"), 0, ()) for n in range(50)]
    assert {each.arm for each in found if each is not None} == {"control", "small"}


def test_settings_replace_fields_and_never_raise_a_limit() -> None:
    of = plan(arms=[{"name": "cool", "percent": 100.0, "settings": {"temperature": 0.1, "max_tokens": 50}}])
    found = of.split(ASKING, 0, ())
    assert found is not None
    change = found.change
    assert change is not None
    assert change.applied({"model": "m", "temperature": 1.0}) == {
        "model": "m",
        "temperature": 0.1,
        "max_tokens": 50,
    }
    assert change.applied({"max_completion_tokens": 20})["max_completion_tokens"] == 20
    assert "max_tokens" not in change.applied({"max_completion_tokens": 70})
    assert change.applied({"max_completion_tokens": 70})["max_completion_tokens"] == 50


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "control is taken": ({"arms": [SMALL | {"name": "control"}]}, "another name"),
    "nothing changes": ({"arms": [{"name": "a", "percent": 1.0}]}, "changes nothing"),
    "too much": (
        {"arms": [SMALL | {"percent": 60.0}, SMALL | {"name": "b", "percent": 50.0}]},
        "100 percent",
    ),
    "same names": ({"arms": [SMALL, SMALL]}, "same name"),
    "a shadow of two": ({"kind": "shadow", "arms": [SMALL, SMALL | {"name": "b"}]}, "one arm"),
    "a version without its prompt": ({"arms": [{"name": "a", "prompt_version": "2"}]}, "needs `prompt`"),
    "a prompt without prompts": ({"prompt": "p"}, "needs the section `prompts`"),
    "an unknown model": ({"arms": [SMALL | {"model": "huge"}]}, "unknown model 'huge'"),
    "an unknown filter": ({"models": ["huge"]}, "models: unknown model 'huge'"),
    "no time": ({"arms": [SMALL | {"ramp": [{"at": "soon", "percent": 1.0}]}]}, "2026-12-01T08:00:00Z"),
    "no zone": (
        {"arms": [SMALL | {"ramp": [{"at": "2026-12-01T08:00:00", "percent": 1.0}]}]},
        "expected a time",
    ),
    "steps in disorder": (
        {
            "arms": [
                SMALL
                | {
                    "ramp": [
                        {"at": "2026-12-02T08:00:00Z", "percent": 1.0},
                        {"at": "2026-12-01T08:00:00Z", "percent": 2.0},
                    ]
                }
            ]
        },
        "in order of time",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_refused_by_name(case: str) -> None:
    changed, says = WRONG[case]
    upstream = [{"name": "u", "url": "http://127.0.0.1:1/v1"}]
    models = [{"id": "big", "upstreams": upstream}, {"id": "small", "upstreams": upstream}]
    right = {"name": "size", "arms": [SMALL]}
    assert parse_args({"models": models, "experiments": [right]}, source="test").experiments
    with pytest.raises(SettingsError, match="experiment") as caught:
        parse_args({"models": models, "experiments": [right | changed]}, source="test")
    assert says in str(caught.value)


def figures(requests: int, failed: int = 0, ttft_ms: float = 100.0, slow: int = 0) -> ArmFigures:
    made = ArmFigures()
    for number in range(requests):
        of = ttft_ms * (10 if number < slow else 1)
        made.add(failed=number >= requests - failed, ttft_ms=of, e2e_ms=of * 3)
    return made


RULES = StopSettings(min_requests=100, e2e_p95_ratio=1.5)


@pytest.mark.parametrize(
    ("arm", "ends"),
    [
        (figures(200), None),
        (figures(200, failed=40), "20.0% of small failed, of control 0.0%"),
        (figures(200, failed=8), None),
        (figures(60, failed=60), None),
        (figures(200, ttft_ms=400), "time to first token"),
        (figures(200, ttft_ms=130), None),
        (figures(200, slow=30), "time to first token"),
        (figures(200, slow=12), None),
    ],
)
def test_an_arm_that_fails_or_is_slow_ends_its_experiment(arm: ArmFigures, ends: str | None) -> None:
    found = reason_to_stop(RULES, {"control": figures(200), "small": arm}, {})
    assert found is None if ends is None else ends in (found or "")


def test_an_outage_of_everything_is_not_the_arms_fault() -> None:
    both = {"control": figures(200, failed=100), "small": figures(200, failed=105)}
    assert reason_to_stop(RULES, both, {}) is None


def test_the_whole_time_is_judged_where_the_settings_say_so() -> None:
    rules = RULES.model_copy(update={"ttft_p95_ratio": None})
    both = {"control": figures(200), "small": figures(200, ttft_ms=400)}
    assert "whole time" in (reason_to_stop(rules, both, {}) or "")
    assert reason_to_stop(rules.model_copy(update={"e2e_p95_ratio": None}), both, {}) is None


def test_the_verdict_worse_ends_it_and_others_do_not() -> None:
    both = {"control": figures(1), "small": figures(1)}
    assert "worse" in (reason_to_stop(RULES, both, {"small": "worse"}) or "")
    for verdict in ("not worse", "undecided"):
        assert reason_to_stop(RULES, both, {"small": verdict}) is None
    assert reason_to_stop(RULES.model_copy(update={"worse": False}), both, {"small": "worse"}) is None


def test_what_is_old_is_forgotten() -> None:
    window = ArmWindow(60.0)
    window.open(0.0).add(failed=True, ttft_ms=None, e2e_ms=1.0)
    window.open(45.0).add(failed=False, ttft_ms=1.0, e2e_ms=1.0)
    assert (window.read(45.0).requests, window.read(45.0).failed) == (2, 1)
    assert (window.read(70.0).requests, window.read(70.0).failed) == (1, 0)
    assert window.read(500.0).requests == 0


def test_gateways_add_up_their_figures() -> None:
    key = ("size", "small")
    other = figures(50, failed=5).state(key)
    together = with_others({key: figures(10)}, [other, figures(9).state(("x", "y"))])
    assert together.keys() == {key}
    assert (together[key].requests, together[key].failed) == (60, 5)
    assert together[key].ttft.count == 55
