"""Builds the decision that serves traffic, from files on disk: the word lists and the verifier."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from serve_app.cache.cross_encoder import find_cross_encoder
from serve_app.cache.decision import (
    Decision,
    cross_encoded,
    guarded,
    measured_alone,
    reworded,
    similarity_only,
    verified,
)
from serve_app.cache.decision.steps import MeasuredLanguage
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import Guards
from serve_app.cache.normal import load_normaliser
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import CacheSettings
from serve_app.settings.cache import CrossEncoderSettings, Strictness

logger = logging.getLogger("ray.serve")

FIRST_TEXT = "What does the first request find already warm?"


def open_decision(settings: CacheSettings, embedder: str, trained: Path | None = None) -> Decision:
    """Build the decision that the settings ask for. ``embedder`` is the embedder's ``source``;
    ``trained`` is the folder of trained verifiers, by default the shipped one.

    If this embedder has no verifier, or the verifier's files cannot be read, similarity and guards
    decide; if the embedder was measured without a verifier, it has its own threshold and the step
    ``light_edit``. If the configured cross-encoder cannot be loaded, the verifier decides. An embedder that
    was not measured is logged."""
    decision = _cross_encoded(settings.cross_encoder) or _decision(settings.decision, embedder, trained)
    decision = decision.reading(load_normaliser())
    if settings.ask_model is not None:
        decision = decision.asking()
    if settings.languages and settings.decision != "similarity":
        decision = decision.behind(MeasuredLanguage(settings.languages, load_word_lists()))
    if settings.threshold is not None:
        decision = decision.with_threshold(settings.threshold)
    # Warm up: the first pair compiles patterns and fills tables.
    decision.judge(decision.read(FIRST_TEXT), decision.read(FIRST_TEXT), 1.0)
    return decision


def _decision(strictness: Strictness, embedder: str, trained: Path | None) -> Decision:
    if strictness == "similarity":
        return similarity_only()
    guards = Guards(load_word_lists())
    try:
        verifier = find_cross_encoder(embedder, trained)
    except (OSError, ValueError) as error:
        logger.warning("the verifier for %s cannot run: %s; similarity and guards decide", embedder, error)
        return guarded(guards)
    if verifier is None and (alone := measured_alone(embedder)) is not None:
        return reworded(guards, alone)
    if verifier is None:
        logger.warning("no verifier was trained for embedder %s: similarity and guards decide", embedder)
        return guarded(guards)
    return verified(guards, verifier, strictness)


def _cross_encoded(settings: CrossEncoderSettings | None) -> Decision | None:
    if settings is None:
        return None
    try:
        score = open_cross_encoder(settings)
    except (OSError, ValueError) as error:
        logger.error("the cross-encoder %s cannot be used, the verifier decides: %s", settings.source, error)
        return None
    return cross_encoded(Guards(load_word_lists()), score, settings.least)


def open_cross_encoder(settings: CrossEncoderSettings) -> Callable[[str, str], float]:
    """A function that scores a stored text and a new text from 0 to 1.

    Raises:
        OSError: there is no such model.
        ValueError: the model does not have exactly one output.
    """
    from sentence_transformers import CrossEncoder
    from torch import nn

    source = ModelStore(default_cache_dir()).resolve(settings.source)
    model = CrossEncoder(source, device=settings.device, activation_fn=nn.Sigmoid())
    if model.num_labels != 1:
        raise ValueError(
            f"cache.cross_encoder: {settings.source} has {model.num_labels} outputs; one is needed, "
            "the probability that both texts mean the same"
        )

    def score(stored: str, new: str) -> float:
        return float(model.predict([(stored, new)], show_progress_bar=False)[0])

    return score
