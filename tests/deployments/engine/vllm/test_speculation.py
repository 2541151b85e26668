"""Every speculation method on a real engine says what the model says without it; what does not pay is turned
down."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.speculating import Job, Outcome, run_jobs, write_models

from deployments.engine.vllm.arguments import SUFFIX_PACKAGE, check_arguments
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore
from serve_app.settings import EngineSettings, ModelSettings, SpeculationSettings

NGRAM: dict[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
SUFFIX: dict[str, Any] = {"method": "suffix", "num_speculative_tokens": 8}
HAS_SUFFIX = importlib.util.find_spec(SUFFIX_PACKAGE) is not None
needs_suffix = pytest.mark.skipif(
    not HAS_SUFFIX, reason="arctic-inference is not installed: it did not build"
)
Outcomes = Mapping[str, Mapping[str, Outcome]]


def jobs(folder: Path) -> list[Job]:
    """Without the guard where a method is to draft from the first token on."""

    def drafts(method: str, tokens: int, model: str | None = None, *, guard: bool = False) -> dict[str, Any]:
        source = None if model is None else str(folder / model)
        return {"method": method, "num_speculative_tokens": tokens, "model": source, "guard": guard}

    suffix = [
        Job("suffix", SUFFIX | {"guard": False}, dummy=True),
        Job("suffix, guarded", SUFFIX, dummy=True, asks=("repeats",)),
    ]
    return [
        Job("none"),
        Job("draft_model", drafts("draft_model", 3, "other")),
        Job("draft_model, itself", drafts("draft_model", 3, "target", guard=True)),
        Job("none, dummy", dummy=True, asks=("greedy", "repeats")),
        Job("ngram", NGRAM | {"guard": False}, dummy=True, asks=("greedy", "varies")),
        Job("ngram, guarded", NGRAM, dummy=True, asks=("repeats", "varies"), knee_tokens=2.0),
        Job("eagle", drafts("eagle", 3, "eagle"), dummy=True),
        Job("eagle3", drafts("eagle3", 3, "eagle3"), dummy=True),
        Job("medusa", drafts("medusa", 2, "medusa"), dummy=True),
        Job("none, mimo", source="mimo", dummy=True),
        Job("mtp", drafts("mtp", 1), source="mimo", dummy=True),
        *(suffix if HAS_SUFFIX else ()),
    ]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return run_jobs(folder, jobs(folder))


@pytest.mark.parametrize(
    ("method", "without"),
    [
        ("ngram", "none, dummy"),
        ("draft_model", "none"),
        ("eagle", "none, dummy"),
        ("eagle3", "none, dummy"),
        ("medusa", "none, dummy"),
        ("mtp", "none, mimo"),
        pytest.param("suffix", "none, dummy", marks=needs_suffix),
    ],
)
def test_a_method_says_what_the_model_says_without_it(outcomes: Outcomes, method: str, without: str) -> None:
    assert outcomes[method]["greedy"].answers == outcomes[without]["greedy"].answers
    assert outcomes[method]["greedy"].drafted > 0


def test_a_guarded_model_that_drafts_for_itself_is_always_right(outcomes: Outcomes) -> None:
    outcome = outcomes["draft_model, itself"]["greedy"]
    assert outcome.answers == outcomes["none"]["greedy"].answers
    assert outcome.accepted > 0.9 * outcome.drafted > 0


BY_METHOD = [("ngram", NGRAM), pytest.param("suffix", SUFFIX, marks=needs_suffix)]


@pytest.mark.parametrize(("method", "settings"), BY_METHOD)
def test_text_that_repeats_itself_keeps_its_drafts(
    outcomes: Outcomes, method: str, settings: dict[str, Any]
) -> None:
    guarded = outcomes[f"{method}, guarded"]["repeats"]
    assert guarded.answers == outcomes["none, dummy"]["repeats"].answers
    assert guarded.accepted > 100
    assert guarded.depth == settings["num_speculative_tokens"], guarded.reason


def test_text_that_never_does_loses_them(outcomes: Outcomes) -> None:
    plain, guarded = outcomes["ngram"]["varies"], outcomes["ngram, guarded"]["varies"]
    assert plain.accepted < 0.1 * plain.drafted
    assert guarded.drafted < 0.1 * plain.drafted
    assert guarded.depth == 0, guarded.reason


def test_suffix_decoding_without_its_package_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, SUFFIX_PACKAGE, None)  # Python's own way to say: not there
    engine = EngineSettings(speculation=SpeculationSettings(method="suffix", num_speculative_tokens=8))
    model = ModelSettings(id="m", source="owner/m", engine=engine)
    with pytest.raises(SettingsError, match="needs the package arctic-inference"):
        check_arguments(model, ModelStore(tmp_path))
