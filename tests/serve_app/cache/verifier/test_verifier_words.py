"""How the verifier reads a text, with a small tokenizer of the same library as the embedder's."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from serve_app.cache.verifier.words import MAX_WORDS, WordReader, centred, unit

VOCABULARY = ["[UNK]", "the", "cat", "dog", "##s", "sat", "?", "seven", "rare"]


@pytest.fixture
def reader() -> WordReader:
    tokenizer = Tokenizer(
        WordPiece({word: index for index, word in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    table = np.random.default_rng(1).normal(size=(len(VOCABULARY), 4)).astype(np.float32)
    return WordReader(tokenizer, table, frozenset({"the"}), first_rank=0)


def test_words_are_in_lower_case_and_without_punctuation(reader: WordReader) -> None:
    words = reader.read("The cat SAT?")
    assert words.texts == ("the", "cat", "sat")
    assert words.is_content.tolist() == [False, True, True]


def test_a_word_of_several_tokens_is_one_word(reader: WordReader) -> None:
    words = reader.read("the cats")
    assert words.texts == ("the", "cats")
    assert words.vectors.shape == (2, 4)
    assert words.weights[1] == pytest.approx(3.0)


def test_vectors_have_length_one(reader: WordReader) -> None:
    assert np.linalg.norm(reader.read("the cats sat").vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)


def test_a_function_word_weighs_little_and_a_rare_word_much(reader: WordReader) -> None:
    the, cat, rare = reader.read("the cat rare").weights.tolist()
    assert the < cat < 1.51
    assert rare >= cat


@pytest.mark.parametrize("text", ["", "   ", "?!", "👍"])
def test_a_text_may_hold_no_word(reader: WordReader, text: str) -> None:
    words = reader.read(text)
    assert (len(words), words.vectors.shape) == (0, (0, 4))


def test_only_the_beginning_of_a_long_text_is_read(reader: WordReader) -> None:
    assert len(reader.read("cat " * 1000)) == MAX_WORDS


def test_the_common_part_of_a_table_is_taken_off() -> None:
    table = np.array([[10.0, 1.0], [10.0, -1.0]], dtype=np.float32)
    assert centred(table).tolist() == [[0.0, 1.0], [0.0, -1.0]]


def test_a_vector_of_nothing_stays_nothing() -> None:
    assert unit(np.zeros((1, 3), np.float32)).tolist() == [[0, 0, 0]]
