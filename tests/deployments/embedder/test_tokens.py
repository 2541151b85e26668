"""Groups of similar length, padding at either end, cutting at either end."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from deployments.embedder.tokens import TextTokenizer, TokenizerTraits, by_length

PAD, START, UNKNOWN, A, B, C = range(6)
VOCABULARY = {"<pad>": PAD, "<s>": START, "<unk>": UNKNOWN, "a": A, "b": B, "c": C}


def tokenizer(*, left: bool = False, max_tokens: int = 4) -> TextTokenizer:
    words = Tokenizer(WordLevel(VOCABULARY, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", START)])
    traits = TokenizerTraits(pad_id=PAD, pad_type_id=9, pad_left=left, cut_left=left, unknown_id=UNKNOWN)
    return TextTokenizer(words, max_tokens, traits)


def test_a_long_text_is_cut_at_its_end_and_counted_whole() -> None:
    [text] = tokenizer().read(["a b c a b c a b"])
    assert (text.ids, text.total) == ((START, A, B, C), 9)


def test_a_model_that_reads_the_end_has_the_beginning_cut() -> None:
    [text] = tokenizer(left=True).read(["a b c a b"])
    assert (text.ids, text.total) == ((START, C, A, B), 6)


def test_only_unknown_tokens_that_are_read_count() -> None:
    texts = tokenizer().read(["a x b", "a b c x y", "a"])
    assert [text.unknown for text in texts] == [1, 0, 0]


@pytest.mark.parametrize(
    ("left", "ids", "mask", "types"),
    [
        (False, [[START, A, B], [START, C, PAD]], [[1, 1, 1], [1, 1, 0]], [[0, 0, 0], [0, 0, 9]]),
        (True, [[START, A, B], [PAD, START, C]], [[1, 1, 1], [0, 1, 1]], [[0, 0, 0], [9, 0, 0]]),
    ],
)
def test_shorter_texts_are_padded(
    left: bool, ids: list[list[int]], mask: list[list[int]], types: list[list[int]]
) -> None:
    words = tokenizer(left=left)
    padded = words.padded(words.read(["a b", "c"]))
    assert {name: array.tolist() for name, array in padded.items()} == {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": types,
    }


@pytest.mark.parametrize("waste", [0.0, 0.1, 1.0, 100.0])
def test_groups_hold_every_position_once_and_waste_no_more_than_allowed(waste: float) -> None:
    lengths = random.Random(3).choices(range(2, 257), k=200)
    groups = by_length(lengths, waste)
    assert sorted(position for group in groups for position in group) == list(range(200))
    for group in groups:
        own = [lengths[position] for position in group]
        assert max(own) * len(own) <= sum(own) * (1 + waste)


def test_equal_lengths_are_one_group_in_order() -> None:
    assert by_length([5, 5, 5], 0.0) == [[0, 1, 2]]
    assert by_length([9, 2, 9, 2], 0.1) == [[1, 3], [0, 2]]
    assert by_length([], 0.1) == []
