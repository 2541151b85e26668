"""An entry's evidence and blocked pairs: bounded, small in JSON, read back as they were."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from serve_app.cache.bound import BlockedPairs, EntryEvidence, Observation, feedback, text_hash
from serve_app.cache.bound.blocked import is_refused
from serve_app.cache.bound.evidence import KEPT_OBSERVATIONS, KEPT_REFUSED


def evidence_of(count: int, right: bool = True) -> EntryEvidence:
    evidence = EntryEvidence()
    for number in range(count):
        evidence = evidence.with_observation(Observation(number / 1000, right))
    return evidence


def test_it_keeps_the_newest_and_counts_all() -> None:
    evidence = evidence_of(100)
    assert [o.score for o in evidence.observations] == [number / 1000 for number in range(68, 100)]
    assert (evidence.right, evidence.wrong) == (100, 0)


def test_it_goes_through_json_and_is_small() -> None:
    evidence = feedback(evidence_of(100), 0.5, right=False)
    text = json.dumps(evidence.to_dict(), separators=(",", ":"))
    assert EntryEvidence.from_dict(json.loads(text)) == evidence
    assert len(text) < 800


@pytest.mark.parametrize("data", [{}, {"seen": [[1]], "right": 0, "wrong": 0}, {"seen": None}, None, []])
def test_what_is_no_evidence_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not an entry's evidence"):
        EntryEvidence.from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ours", "theirs"), [(0, 0), (3, 4), (40, 3), (3, 40), (40, 40), (20, 16)])
def test_merged_evidence_keeps_of_both_and_no_more_than_one_may(ours: int, theirs: int) -> None:
    merged = evidence_of(ours).merged(evidence_of(theirs, right=False))
    kept = [o.right for o in merged.observations]
    assert len(kept) == min(KEPT_OBSERVATIONS, min(ours, 32) + min(theirs, 32))
    assert kept.count(True) >= min(ours, 16)
    assert kept.count(False) >= min(theirs, 16)
    assert (merged.right, merged.wrong) == (ours, theirs)


def test_a_report_weighs_more_than_a_comparison() -> None:
    reported = feedback(EntryEvidence(), 0.9, right=False).observations[0]
    assert reported.is_report
    assert reported.weight > Observation(0.9, False).weight


def test_a_pair_is_blocked_however_the_text_is_written() -> None:
    blocked = BlockedPairs()
    blocked.block(UUID(int=1), "What is  the Capital?")
    assert blocked.is_blocked(UUID(int=1), "what is the capital")
    assert not blocked.is_blocked(UUID(int=2), "what is the capital")
    assert not blocked.is_blocked(UUID(int=1), "what is the capitol")


def test_texts_without_words_are_told_apart() -> None:
    blocked = BlockedPairs()
    blocked.block(UUID(int=1), "?!")
    assert blocked.is_blocked(UUID(int=1), "?!")
    assert not blocked.is_blocked(UUID(int=1), "...")


def test_a_pair_can_be_unblocked() -> None:
    blocked = BlockedPairs()
    blocked.block(UUID(int=1), "a")
    assert blocked.unblock(UUID(int=1), "A")
    assert not blocked.unblock(UUID(int=1), "a")
    assert not blocked.is_blocked(UUID(int=1), "a")


def test_the_oldest_pairs_go_first() -> None:
    blocked = BlockedPairs(capacity=3)
    for number in (1, 2, 3, 1, 4):
        blocked.block(UUID(int=number), "a")
    assert len(blocked) == 3
    assert [entry_id.int for entry_id, _ in blocked] == [3, 1, 4]


def test_blocked_pairs_go_through_json_and_merge() -> None:
    one, two = BlockedPairs(), BlockedPairs()
    one.block(UUID(int=1), "a")
    two.block(UUID(int=1), "a")
    two.block(UUID(int=2), "b")
    again = BlockedPairs.from_list(json.loads(json.dumps(two.to_list())))
    assert list(again) == list(two)
    assert len(one.merged(two)) == 2


@pytest.mark.parametrize("pairs", [[["x", "y"]], [["a"]], [1], [[1, 2]]])
def test_what_are_no_pairs_is_refused(pairs: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="not blocked pairs"):
        BlockedPairs.from_list(pairs)


def test_texts_that_users_call_wrong_are_kept_bounded_and_go_through_json() -> None:
    evidence = evidence_of(2)
    for number in range(KEPT_REFUSED + 5):
        evidence = evidence.with_refused(f"hash-{number}", wrong=True)
    assert evidence.refused == tuple(f"hash-{number}" for number in range(5, KEPT_REFUSED + 5))
    assert EntryEvidence.from_dict(json.loads(json.dumps(evidence.to_dict()))) == evidence
    assert evidence.with_observation(Observation(0.5, True)).refused == evidence.refused
    assert "refused" not in evidence_of(2).to_dict(), "what older versions read stays as it was"


def test_who_takes_it_back_takes_back_one_text() -> None:
    evidence = EntryEvidence().with_refused("a", wrong=True).with_refused("b", wrong=True)
    assert evidence.with_refused("a", wrong=False).refused == ("b",)
    assert not evidence.with_refused("a", wrong=False).with_refused("b", wrong=False)


def test_only_the_text_that_was_called_wrong_is_refused_and_only_at_that_entry() -> None:
    evidence = EntryEvidence().with_refused(text_hash("How far?"), wrong=True)
    one = UUID(int=1)
    assert is_refused(BlockedPairs(), evidence, (one, "how far"))
    assert not is_refused(BlockedPairs(), evidence, (one, "how near"))
    assert not is_refused(BlockedPairs(), EntryEvidence(), (one, "how far"))
    assert not is_refused(BlockedPairs(), evidence, None)
