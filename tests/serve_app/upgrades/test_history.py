"""Which configs were in force last."""

from __future__ import annotations

from typing import Any

from serve_app.settings import parse_args
from serve_app.upgrades import Effect, History, changes, rolling_problems, taken_back

CHAT = {"id": "chat", "source": "org/chat", "engine": {"accelerator": "gpu"}}


def config(args: str, **keys: Any) -> dict[str, Any]:
    return {"applications": [{"name": "promptly", "args": {"is": args}, **keys}]}


A, B, C = (config(name) for name in "ABC")


def test_the_way_back_leads_to_the_config_before_and_forth_again() -> None:
    history = History().seen(A, has_run=True)
    assert history.back(has_run=True) is None
    history = history.seen(B, has_run=True)
    assert history.back(has_run=True) == A
    history = history.seen(A, has_run=True)
    assert history.back(has_run=True) == B


def test_a_config_that_never_ran_is_no_way_back_and_loses_none() -> None:
    history = History().seen(A, has_run=True).seen(B, has_run=True).seen(C, has_run=False)
    assert history.back(has_run=False) == B
    assert history.seen(B, has_run=True).back(has_run=True) == A


def test_what_stopping_first_leaves_in_a_config_makes_no_other_one() -> None:
    left = config("A", deployments=[{"name": "Engine:m", "max_surge_percent": 0}])
    history = History().seen(B, has_run=True).seen(A, has_run=True).seen(left, has_run=True)
    assert history.back(has_run=True) == B
    own = config("A", deployments=[{"name": "Gateway", "num_replicas": 2}])
    assert history.seen(own, has_run=True).back(has_run=True) == A


def test_what_runs_behind_a_config_that_never_ran_is_known_where_it_was_applied_here() -> None:
    history = History(in_force=(A,), asked=B)
    assert history.behind(B, has_run=False) == A
    assert history.behind(B, has_run=True) is None
    assert history.behind(C, has_run=False) is None
    assert History(asked=B).behind(B, has_run=False) is None


def test_an_unhealthy_config_that_was_applied_here_has_run_only_if_it_was_seen_to() -> None:
    """Serve says so of a new config at once where a part that it leaves alone is unhealthy."""
    history = History(in_force=(A,), asked=B)
    assert history.has_run(B, "RUNNING")
    assert not history.has_run(B, "UNHEALTHY")
    assert history.seen(B, has_run=True).has_run(B, "UNHEALTHY")
    assert history.has_run(C, "UNHEALTHY"), "applied elsewhere: nothing else is known of it"
    assert not history.has_run(C, "DEPLOYING")


def test_a_config_that_was_in_force_and_starts_anew_is_not_its_own_way_back() -> None:
    history = History(in_force=(A,), asked=B).seen(B, has_run=True)
    for status in ("DEPLOYING", "DEPLOY_FAILED"):
        assert history.has_run(B, status)
    assert not history.has_run(C, "DEPLOYING"), "applied elsewhere"
    assert history.asking(B, B, has_run=True).has_run(B, "DEPLOYING"), "applied once more"
    assert not history.asking(A, B, has_run=True).has_run(A, "DEPLOYING")


def test_a_config_is_kept_as_its_file_has_it() -> None:
    left = config("B", deployments=[{"name": "Engine:m", "max_surge_percent": 0}])
    assert History(in_force=(A,), asked=B).seen(left, has_run=True).in_force == (B, A)
    assert History(in_force=(A,), asked=left).seen(B, has_run=True).in_force == (left, A), "its own option"
    assert History(in_force=(A,), asked=C).seen(left, has_run=True).in_force == (left, A)


def test_an_engine_that_is_scaled_may_be_one_that_a_failed_config_replaced() -> None:
    """Then its replacement needs a place of its own as well."""
    models = ({**CHAT, "replicas": 2}, CHAT, {**CHAT, "engine": {"accelerator": "gpu", "max_num_seqs": 7}})
    new, in_force, failed = (parse_args({"models": [each]}, source="test") for each in models)
    planned = changes(in_force, new)
    planned = (*planned, *taken_back(failed, new, planned))
    effects = [change.effect for change in planned if change.model == "chat"]
    assert effects == [Effect.SCALED, Effect.TAKEN_BACK]
    (problem,) = rolling_problems(new, planned, {"CPU": 100.0, "GPU": 2.0}, spare=True)
    assert "use --stop-first" in problem
