"""What every encoder keeps: sentence-transformers' own vectors, in order, for any text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from embedding_samples import LONE_SURROGATE, TEXTS, require_onnx

from deployments.embedder import EncoderSpec, TextEncoder, open_encoder
from deployments.embedder.torch_encoder import DirectEncoder, LibraryEncoder, agree

TOLERANCE = 1e-5


def library_vectors(library: Any, texts: tuple[str, ...]) -> np.ndarray:
    return np.asarray(library.encode(list(texts), normalize_embeddings=True, show_progress_bar=False))


def test_vectors_are_the_library_s_own(encoder: TextEncoder, library: Any) -> None:
    expected = library_vectors(library, TEXTS)
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]).vectors for text in TEXTS])
    assert together.vectors.dtype == np.float32
    assert np.abs(together.vectors - expected).max() < TOLERANCE
    assert np.abs(alone - expected).max() < TOLERANCE


def test_token_counts_are_the_library_s_own(encoder: TextEncoder, library: Any) -> None:
    ids = library.tokenizer(list(TEXTS), truncation=False, verbose=False)["input_ids"]
    encoded = encoder.encode(TEXTS)
    assert encoded.tokens == tuple(len(own) for own in ids)
    unknown = library.tokenizer.unk_token_id
    assert encoded.unknown == tuple(own[: encoder.max_tokens].count(unknown) for own in ids)


def test_vectors_come_in_the_order_of_their_texts(encoder: TextEncoder) -> None:
    forwards, backwards = encoder.encode(TEXTS), encoder.encode(TEXTS[::-1])
    assert np.abs(forwards.vectors - backwards.vectors[::-1]).max() < TOLERANCE
    assert forwards.tokens == backwards.tokens[::-1]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_text_s_vector_does_not_depend_on_its_company(spec: EncoderSpec, dtype: str) -> None:
    require_onnx()
    encoder = open_encoder("onnx", replace(spec, dtype=dtype))
    alone = np.concatenate([encoder.encode([text]).vectors for text in TEXTS])
    together = encoder.encode(TEXTS)
    assert np.abs(together.vectors - alone).max() < TOLERANCE
    # INT8 with one scale for all of them: 0.99 at the median, 0.96 at the worst.
    assert np.min(np.sum(together.vectors * alone, axis=1)) > 0.999_999


def test_vectors_have_length_one(encoder: TextEncoder) -> None:
    vectors = encoder.encode([*TEXTS, LONE_SURROGATE]).vectors
    assert vectors.shape == (len(TEXTS) + 1, encoder.dimension)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_no_texts_are_no_vectors(encoder: TextEncoder) -> None:
    encoded = encoder.encode([])
    assert encoded.vectors.shape == (0, encoder.dimension)
    assert encoded.tokens == encoded.unknown == ()


def test_a_text_that_fills_the_window_is_whole_and_a_longer_one_is_counted(encoder: TextEncoder) -> None:
    words = encoder.max_tokens - 2  # beside the two special tokens
    encoded = encoder.encode(["sea " * words, "sea " * (words + 1), "sea " * words + "sand"])
    assert encoded.tokens == (encoder.max_tokens, encoder.max_tokens + 1, encoder.max_tokens + 1)
    assert np.abs(encoded.vectors - encoded.vectors[0]).max() < TOLERANCE


def test_a_text_of_a_hundred_thousand_characters_is_counted_whole(encoder: TextEncoder) -> None:
    [tokens] = encoder.encode(["sand " * 20_000]).tokens
    assert tokens == 20_002


def test_a_lone_surrogate_is_read_as_the_replacement_character(encoder: TextEncoder) -> None:
    found = encoder.encode([LONE_SURROGATE, LONE_SURROGATE.replace("\ud83d", "\ufffd")]).vectors
    assert np.abs(found[0] - found[1]).max() < TOLERANCE


def test_texts_that_differ_in_unknown_tokens_alone_are_told_by_their_count(encoder: TextEncoder) -> None:
    first, second = "Decode " + "a" * 101, "Decode " + "b" * 101
    encoded = encoder.encode([first, second, "Decode this"])
    assert np.abs(encoded.vectors[0] - encoded.vectors[1]).max() < TOLERANCE
    assert encoded.unknown == (1, 1, 0)


def test_encoders_of_the_same_precision_share_a_name(encoder: TextEncoder, spec: EncoderSpec) -> None:
    assert encoder.name == f"{spec.source}:float32"
    assert (encoder.dimension, encoder.max_tokens) == (384, 256)


def test_torch_takes_the_direct_way_for_a_plain_model(spec: EncoderSpec) -> None:
    assert isinstance(open_encoder("torch", spec), DirectEncoder)


def test_a_model_with_a_prompt_goes_through_the_library(library: Any, spec: EncoderSpec) -> None:
    direct, own = DirectEncoder(library, spec), LibraryEncoder(library, spec)
    assert agree(direct, own, TOLERANCE)
    library.prompts, library.default_prompt_name = {"query": "query: "}, "query"
    try:
        assert not agree(direct, own, TOLERANCE)
    finally:
        library.prompts, library.default_prompt_name = {}, None


def test_the_library_s_way_counts_like_the_direct_one(library: Any, spec: EncoderSpec) -> None:
    direct, own = DirectEncoder(library, spec).encode(TEXTS), LibraryEncoder(library, spec).encode(TEXTS)
    assert (own.tokens, own.unknown) == (direct.tokens, direct.unknown)
    assert LibraryEncoder(library, spec).encode([]).vectors.shape == (0, 384)


def test_half_precision_is_near_and_has_a_name_of_its_own(spec: EncoderSpec, library: Any) -> None:
    half = open_encoder("torch", replace(spec, dtype="bfloat16"))
    assert half.name == f"{spec.source}:bfloat16"
    vectors = half.encode(TEXTS).vectors
    assert (vectors * library_vectors(library, TEXTS)).sum(axis=1).min() > 0.999
