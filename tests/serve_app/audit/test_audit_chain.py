"""The chain of the audit log: every way to tamper with a file is found, and the line is named."""

from __future__ import annotations

import json

import pytest

from serve_app.audit import AuditEvent, Chain, Head, verify
from serve_app.audit.chain import FIRST, HASH_FIELD, read_line
from serve_app.audit.values import MOST_CHARS


def event(target: str = "t", **changed: str) -> AuditEvent:
    known = {"actor": "key:abc", "action": "cache.purge", "outcome": "done", **changed}
    return AuditEvent(at=1_790_000_000.25, target=target, **known)


def log(count: int = 5, head: Head | None = None) -> tuple[list[bytes], Head]:
    chain, lines = Chain(head or Head()), []
    for number in range(count):
        line, after = chain.line(event(f"target-{number}"))
        chain.advance(after)
        lines.append(line)
    return lines, chain.head


def test_a_log_that_nobody_touched_is_right() -> None:
    lines, head = log()
    report = verify(lines, head)
    assert report.problem is None
    assert (report.lines, report.first, report.head) == (5, 1, head)


def test_an_empty_log_is_right_where_nothing_was_written() -> None:
    assert verify([], Head()).problem is None
    assert verify([]).head == Head(0, FIRST)


def test_each_line_says_who_did_what() -> None:
    (line,), _ = log(1)
    assert json.loads(line) | {"hash": "", "previous": ""} == {
        "seq": 1,
        "time": "2026-09-21T14:13:20.250+00:00",
        "actor": "key:abc",
        "role": "",
        "tenant": "",
        "action": "cache.purge",
        "target": "target-0",
        "outcome": "done",
        "request_id": "",
        "gateway": "",
        "previous": "",
        "hash": "",
    }


def changed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b"target-2", b"target-9"), *lines[3:]]


def changed_with_a_new_hash(lines: list[bytes]) -> list[bytes]:
    other, _ = log(3, Head(0, FIRST))
    forged, _ = Chain(Head(2, json.loads(lines[1])["hash"])).line(event("forged"))
    assert len(other) == 3
    return [*lines[:2], forged, *lines[3:]]


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (changed, "line 3 (number 3) was changed"),
        (changed_with_a_new_hash, "line 4 (number 4) does not follow the line before it"),
        (lambda lines: [*lines[:1], *lines[2:]], "line 2 has number 3 behind 1: 1 before it were removed"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2 has number 3 behind 1"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 2 has number 1 behind 2"),
        (lambda lines: [*lines, lines[-1]], "line 6 has number 5 behind 5"),
        (lambda lines: lines[:3], "behind line 3 (number 3) 2 were removed"),
        (lambda lines: [], "behind line 0 (number 0) 5 were removed"),
        (lambda lines: [*lines[:4], lines[4][:-20]], "line 5 was not written to its end"),
        (lambda lines: [*lines[:2], b"{}\n", *lines[3:]], "line 3 is no line of an audit log"),
        (lambda lines: [*lines[:2], b"\xff\n", *lines[3:]], "line 3 is no line of an audit log"),
        (lambda lines: [*lines, b"\n"], "line 6 is no line of an audit log"),
    ],
)
def test_what_was_tampered_with_is_found_and_named(tamper: object, problem: str) -> None:
    lines, head = log()
    assert callable(tamper)
    found = verify(tamper(lines), head).problem
    assert found is not None
    assert found.startswith(problem)


def test_a_forged_line_at_the_end_is_found_by_the_head() -> None:
    lines, head = log()
    forged, _ = Chain(head).line(event("forged"))
    assert verify([*lines, forged]).problem is None
    assert verify([*lines, forged], head).problem == "line 6 (number 6) was appended by another"


def test_a_last_line_that_was_replaced_is_found_by_the_head() -> None:
    lines, head = log()
    before = json.loads(lines[-2])
    forged, _ = Chain(Head(4, before["hash"])).line(event("forged"))
    found = verify([*lines[:-1], forged], head).problem
    assert found == "line 5 (number 5) is not the one that the log ended with"


def test_a_whole_log_that_was_written_anew_is_found_by_the_head() -> None:
    _, head = log()
    anew = Chain(Head())
    lines = []
    for number in range(5):
        line, after = anew.line(event(f"other-{number}"))
        anew.advance(after)
        lines.append(line)
    assert verify(lines).problem is None
    assert verify(lines, head).problem is not None


def test_later_files_of_a_log_are_checked_by_themselves_and_together() -> None:
    first, middle = log(3)
    second, head = log(2, middle)
    assert verify(second, head).first == 4
    assert verify([*first, *second], head).problem is None
    assert verify([*first, *second[1:]], head).problem is not None


def test_a_first_line_that_names_one_before_it_is_found() -> None:
    (line,), _ = log(1)
    assert verify([line.replace(FIRST.encode(), b"1" * 64)]).problem is not None


def test_whatever_a_client_names_is_one_line_of_json() -> None:
    odd = 'a"b\\c\n\x00,"hash":"' + "\ud800" + "x" * 1000
    line, head = Chain(Head()).line(event(odd, actor=odd))
    assert line.count(b"\n") == 1
    read = read_line(line)
    assert read is not None
    assert len(read.target) == MOST_CHARS
    assert verify([line], head).problem is None
    assert HASH_FIELD in line
