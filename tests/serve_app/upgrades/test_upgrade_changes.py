"""What a new config changes, and whether there is room for the change."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines.placement import check_placement, needed
from serve_app.settings import Settings, parse_args
from serve_app.upgrades import Effect, changes, part_versions, rolling_problems, told_needs

ENGINE = {"accelerator": "gpu", "tensor_parallel_size": 2}
CHAT = {"id": "chat", "source": "org/chat", "engine": ENGINE}
OTHER = {"id": "other", "source": "org/other", "engine": ENGINE}
EMBEDDER = {"id": "minilm", "source": "org/minilm"}
CACHED = {"embedder": EMBEDDER, "cache": {}}
PLENTY = {"CPU": 100.0, "GPU": 100.0}


def settings(*models: dict[str, Any], **sections: Any) -> Settings:
    return parse_args({"models": list(models) or [CHAT], **sections}, source="test")


def effects(old: Settings, new: Settings) -> dict[str, Effect]:
    return {change.part: change.effect for change in changes(old, new)}


def test_equal_configs_change_nothing() -> None:
    assert changes(settings(), settings()) == ()


@pytest.mark.parametrize(
    "new",
    [
        settings(limits={"max_body_bytes": 2_000}),
        settings({**CHAT, "aliases": ["gpt"]}),
        settings({**CHAT, "routing": "least_wait"}),
        settings({**CHAT, "cost_per_device_hour": 2.0}),
        settings(auth={"keys_env": "KEYS"}),
    ],
    ids=["limits", "aliases", "routing", "prices", "keys"],
)
def test_what_only_gateways_read_replaces_only_gateways(new: Settings) -> None:
    assert effects(settings(), new) == {"gateways": Effect.ROLLED}


def test_a_threshold_restarts_the_cache_and_no_engine() -> None:
    new = settings(embedder=EMBEDDER, cache={"threshold": 0.9})
    found = effects(settings(**CACHED), new)
    assert found == {"cache": Effect.RESTARTED, "gateways": Effect.ROLLED}


def test_models_come_and_go_without_the_others() -> None:
    found = effects(settings(CHAT), settings(OTHER))
    assert found == {"model chat": Effect.REMOVED, "model other": Effect.ADDED, "gateways": Effect.ROLLED}


def test_an_engines_own_setting_replaces_its_engines() -> None:
    new = settings({**CHAT, "engine": {**ENGINE, "max_num_seqs": 7}}, OTHER)
    change, gateways = changes(settings(CHAT, OTHER), new)
    assert (change.model, change.effect) == ("chat", Effect.ROLLED)
    assert change.settings == ("engine.max_num_seqs",)
    assert gateways.part == "gateways"


def test_more_replicas_replace_no_engine() -> None:
    found = effects(settings(), settings({**CHAT, "replicas": 3}))
    assert found == {"model chat": Effect.SCALED, "gateways": Effect.ROLLED}


def test_proxies_keep_their_settings_until_the_next_start() -> None:
    found = effects(settings(), settings(proxy={"header_timeout_s": 3}))
    assert found["proxies"] is Effect.KEPT


def test_values_are_never_told() -> None:
    (*_, gateways) = changes(settings(), settings(auth={"keys_env": "SECRET_NAME"}))
    assert "SECRET_NAME" not in str(gateways)
    assert "auth" in str(gateways)


def test_a_keys_section_that_stops_sharing_drafts_is_seen_by_engines() -> None:
    """With keys, engines run with other speculation: they are replaced, although `models` is the same."""
    engine = {**ENGINE, "speculation": {"method": "suffix", "num_speculative_tokens": 4}}
    old = settings({**CHAT, "engine": engine})
    new = settings({**CHAT, "engine": engine}, auth={"keys_env": "KEYS"})
    assert effects(old, new)["model chat"] is Effect.ROLLED


def test_every_part_has_a_version_of_its_own() -> None:
    found = part_versions(settings(CHAT, OTHER, **CACHED))
    assert set(found) == {"Embedder", "SemanticCache", "Responses", "Engine:chat", "Engine:other"}
    assert len(set(found.values())) == len(found)


def test_a_config_that_does_not_fit_is_a_problem_before_anything_is_stopped() -> None:
    new = settings({**CHAT, "replicas": 3})
    (problem,) = rolling_problems(new, changes(settings(), new), {"CPU": 100.0, "GPU": 4.0}, spare=True)
    assert "models[0].replicas" in problem


def test_a_roll_needs_room_for_one_more_engine() -> None:
    new = settings({**CHAT, "engine": {**ENGINE, "max_num_seqs": 7}})
    planned = changes(settings(), new)
    full = {"CPU": 100.0, "GPU": 2.0}
    (problem,) = rolling_problems(new, planned, full, spare=True)
    assert problem.startswith("model chat: a new engine starts before an old one stops, which needs 2 GPU")
    assert list(rolling_problems(new, planned, full, spare=False)) == []
    assert list(rolling_problems(new, planned, {**full, "GPU": 4.0}, spare=True)) == []


def test_what_rolls_no_engine_needs_no_room() -> None:
    new = settings(limits={"max_body_bytes": 2_000})
    assert list(rolling_problems(new, changes(settings(), new), {"CPU": 100.0, "GPU": 2.0}, spare=True)) == []


def test_what_a_config_takes_is_told_beside_what_the_cluster_has() -> None:
    few = {"num_cpus": 0.5}
    alone = {"gateway": {"replicas": 3, **few}, "responses": {"enabled": False}}
    chat = {**CHAT, "engine": {**ENGINE, "num_cpus": 2.0}, "replicas": {"min": 2, "max": 9}}
    external = {"id": "far", "upstreams": [{"name": "vendor", "url": "https://vendor.example/v1"}]}
    (told,) = told_needs(settings(chat, external, **alone), (), {"CPU": 16.0, "GPU": 8.0}, spare=True)
    assert told.endswith(": 4 of 8 GPU, 5.5 of 16 CPU")
    on_cpus = {**CHAT, "engine": {"accelerator": "cpu", "num_cpus": 0}}
    (told,) = told_needs(settings(on_cpus, **alone), (), {"CPU": 16.0}, spare=True)
    assert told.endswith(": 2.5 of 16 CPU"), "no GPU is asked for, none is told"


def test_what_takes_as_much_as_is_told_fits_and_a_little_less_does_not() -> None:
    new = settings(
        {**CHAT, "replicas": 2}, OTHER, **CACHED, auth={"accounts": True}, accounts={}, feedback={}
    )
    exact = needed(new)
    assert list(check_placement(new, exact)) == []
    for name in ("CPU", "GPU"):
        assert list(check_placement(new, {**exact, name: exact[name] - 0.1})) != []


def test_what_a_roll_takes_for_a_while_is_told_of_each_engine_that_is_replaced() -> None:
    new = settings({**CHAT, "engine": {**ENGINE, "num_cpus": 3, "max_num_seqs": 7}}, OTHER)
    planned = changes(settings(CHAT, OTHER), new)
    _, *rolls = told_needs(new, planned, PLENTY, spare=True)
    assert rolls == ["model chat: until an old engine stops, 2 GPU, 3 CPU more"]
    assert len(list(told_needs(new, planned, PLENTY, spare=False))) == 1
