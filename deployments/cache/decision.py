"""Builds the decision that serves traffic from files on disk: word lists, verifier, token vectors.

The token vectors are the embedder's input embedding table. They are read from the model's own files, so the
cache does not load a second copy of the model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from serve_app.cache.decision import Decision, cross_encoded, guarded, similarity_only, verified
from serve_app.cache.decision.steps import MeasuredLanguage
from serve_app.cache.guards.lists import load_word_lists
from serve_app.cache.guards.registry import GUARDS, Guards
from serve_app.cache.normal import load_normaliser
from serve_app.cache.verifier.library import find_verifier, function_words
from serve_app.cache.verifier.verifier import FULL_PRECISION
from serve_app.cache.verifier.words import Floats, WordReader
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import CacheSettings
from serve_app.settings.cache import CrossEncoderSettings, Strictness

logger = logging.getLogger("ray.serve")

FIRST_TEXT = "What does the first request find already warm?"

TABLE_NAMES = ("embeddings.word_embeddings.weight", "embed_tokens.weight", "wte.weight")
"""Names of the input embedding tensor in different model families; the first match is used."""


def open_decision(settings: CacheSettings, embedder: str, dtype: str = FULL_PRECISION) -> Decision:
    """Build the decision that the settings ask for. ``embedder`` is the embedder's ``source``, computed in
    ``dtype``.

    If this embedder has no verifier, or the verifier's files are not on this node, similarity and guards
    decide. If the configured cross-encoder cannot be loaded, the verifier decides. Both are logged."""
    decision = _cross_encoded(settings.cross_encoder) or _decision(settings.decision, embedder, dtype)
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


def _decision(strictness: Strictness, embedder: str, dtype: str) -> Decision:
    if strictness == "similarity":
        return similarity_only()
    guards = Guards(load_word_lists())
    try:
        verifier = find_verifier(embedder, GUARDS)
        if verifier is None:
            logger.warning("no verifier was trained for embedder %s: similarity and guards decide", embedder)
            return guarded(guards)
        reader = open_word_reader(embedder)
    except (OSError, LookupError, ValueError) as error:
        logger.warning("the verifier for %s cannot run: %s; similarity and guards decide", embedder, error)
        return guarded(guards)
    return verified(guards, verifier, reader, verifier.card.threshold(strictness, dtype))


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


def open_word_reader(embedder: str) -> WordReader:
    """Load the tokenizer and the token vectors from the model's folder.

    Raises:
        OSError: the folder or one of its files is missing.
        LookupError: none of the tensors is an input embedding table.
    """
    folder = Path(ModelStore(default_cache_dir()).resolve(embedder))
    if not folder.is_dir():
        folder = _hub_folder(embedder)
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(f"no tokenizer.json in {folder}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return WordReader(cast("Any", tokenizer), _input_table(folder), function_words())


def _hub_folder(embedder: str) -> Path:
    """The hub client's local folder of the embedder's model; nothing is downloaded here."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(embedder, local_files_only=True))


def _input_table(folder: Path) -> Floats:
    """The input embedding table, of shape [vocabulary, dimension]."""
    for path in _weight_files(folder):
        with safe_open(path, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a dict
                if name.endswith(TABLE_NAMES):
                    return cast("Floats", tensors.get_tensor(name).astype(np.float32))
    raise LookupError(f"no input vectors among the tensors of {folder}")


def _weight_files(folder: Path) -> list[Path]:
    """The single weight file, or the files that the index lists."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(named))]
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"no model.safetensors in {folder}")
    return [folder / "model.safetensors"]
