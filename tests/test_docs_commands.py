"""Every command in the documents is run by a test, or has a reason why it cannot be."""

from __future__ import annotations

import re

from support.documented import CANNOT, ELSEWHERE, HERE, ROOT, commands, hidden, matches


def test_every_command_is_run_by_a_test_or_says_why_not() -> None:
    unknown = [
        str(command)
        for command in commands()
        if not any(matches(kind, command) for kind in (HERE, ELSEWHERE, CANNOT))
    ]
    assert unknown == [], "add it to tests/support/documented.py, which says how"


def test_no_line_of_the_lists_is_left_over() -> None:
    texts = [command.text for command in commands()]
    patterns = (*HERE, *ELSEWHERE, *CANNOT)
    assert [each for each in patterns if not any(re.match(each, text) for text in texts)] == []


def test_the_tests_that_are_named_are_there() -> None:
    assert [name for name in ELSEWHERE.values() if not (ROOT / name).is_file()] == []


def test_no_command_stands_in_a_block_that_is_not_looked_into() -> None:
    assert [str(command) for command in hidden()] == [], "begin the block with ```console, the command with $"


def test_commands_are_found_with_all_their_lines() -> None:
    texts = [command.text for command in commands()]
    assert len(texts) > 40
    feedback = next(text for text in texts if "$URL/v1/feedback" in text)
    assert feedback.endswith("}'")
    assert "promptly doctor promptly.yaml" in texts, "without its comment"
