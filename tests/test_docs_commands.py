"""Every command in the documents is run by a test, or has a reason why it cannot be."""

from __future__ import annotations

import re

from docs_site import BESIDE
from support.documented import (
    CANNOT,
    ELSEWHERE,
    HERE,
    PAGES,
    ROOT,
    commands,
    hidden,
    matches,
    not_run,
    summary,
)

KINDS_NOT_RUN, NOT_RUN = 2, 3
"""Lines of ``CANNOT``, and the commands that they stand for."""


def test_every_command_is_run_by_a_test_or_says_why_not() -> None:
    unknown = [
        str(command)
        for command in commands()
        if not any(matches(kind, command) for kind in (HERE, ELSEWHERE, CANNOT))
    ]
    assert unknown == [], "add it to tests/support/documented.py, which says how"


def test_the_commands_that_no_test_runs_become_no_more() -> None:
    """`pytest -rP` shows which these are. Fewer are welcome: then lower the numbers."""
    print(summary())
    assert len(CANNOT) <= KINDS_NOT_RUN, summary()
    assert len(not_run()) <= NOT_RUN, summary()
    assert all(len(why.split()) > 2 for why in CANNOT.values()), summary()


def test_a_command_is_not_both_run_and_said_to_be_impossible() -> None:
    twice = [str(each) for each, _ in not_run() if matches(HERE, each) or matches(ELSEWHERE, each)]
    assert twice == []


def test_every_page_of_the_site_is_looked_into() -> None:
    looked = {str(page.relative_to(ROOT)) for page in PAGES}
    assert looked == {*BESIDE, *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))}


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
