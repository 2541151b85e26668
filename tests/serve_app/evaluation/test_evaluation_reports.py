"""Reports, and their files: what they say, and what no answer can make of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Assertion, Case
from serve_app.evaluation.outcome import Pair, Reply
from serve_app.evaluation.report import Choices, Report, make_report
from serve_app.evaluation.schedule import Turn
from serve_app.evaluation.scorers.base import CaseScore, Score
from serve_app.evaluation.target import Target
from serve_app.evaluation.verdict import Verdict
from serve_app.evaluation.writers.documents import FormerError, as_json, as_junit, former_times
from serve_app.evaluation.writers.page import as_page
from serve_app.evaluation.writers.tables import markdown, terminal

EVIL = "</pre><script>alert(1)</script>\x00]]>|<img src=https://evil.example/x onerror=alert(2)>"
TARGETS = (
    Target("baseline", "old", "http://a", price_in=1.0, price_out=2.0),
    Target("candidate", "new", "http://b", price_in=1.0, price_out=2.0, settings={"top_p": 0.5}),
)


def reply(value: float | None, scale: float = 1.0, **more: Any) -> Reply:
    answer = Answer(
        **{"text": "yes", "ttft_s": 0.1 * scale, "itl_s": (0.02 * scale, 0.02), "e2e_s": 0.2 * scale}
        | {"prompt_tokens": 10, "output_tokens": 3}
        | more
    )
    if value is None:
        return Reply(answer, CaseScore(None, None, (None,), ("judge could not judge: no verdict",)))
    reasons = () if value == 1.0 else (f"exact: got {answer.text}",)
    return Reply(answer, CaseScore(value, value == 1.0, (Score(value, value == 1.0, "r"),), reasons))


GOOD = reply(1.0)


def pairs(
    count: int,
    candidate: Any,
    baseline: Any = GOOD,
    name: str = "case",
    tags: tuple[str, ...] = ("all",),
) -> list[Pair]:
    """``candidate`` and ``baseline``: a reply, or a function from the number to one."""

    def of(given: Any, number: int) -> Any:
        return given(number) if callable(given) else given

    return [
        Pair(
            Case(f"{name}-{number}", (), assertions=(Assertion("exact"),), tags=tags),
            Turn(number, 0, number % 2 == 0),
            of(candidate, number),
            of(baseline, number),
        )
        for number in range(count)
    ]


def report(given: list[Pair], planned: int | None = None, **choices: Any) -> Report:
    return make_report("suite", TARGETS, given, planned or len(given), Choices(**choices))


def test_equal_targets_are_not_worse() -> None:
    found = report(pairs(150, reply(1.0)))
    assert found.verdicts == {"quality": Verdict.NOT_WORSE, "latency": Verdict.NOT_WORSE}
    assert found.status == 0
    assert "Verdict: not worse (quality: not worse, latency: not worse)." in terminal(found)


def test_lost_cases_make_it_worse_and_are_listed() -> None:
    found = report(pairs(150, lambda number: reply(float(number >= 20))))
    assert (found.verdicts["quality"], found.status) == (Verdict.WORSE, 1)
    text = terminal(found)
    assert "lost by the candidate (20 cases)" in text
    assert "score, % is worse: −13.3 points" in text


def test_a_slower_candidate_is_worse_only_if_latency_is_asked_about() -> None:
    given = pairs(150, lambda number: reply(1.0, 1.2 + 0.01 * (number % 7)))
    assert report(given).verdicts == {"quality": Verdict.NOT_WORSE, "latency": Verdict.WORSE}
    assert report(given, gates=("quality",)).status == 0


def test_few_cases_are_undecided_and_say_how_many_would_decide() -> None:
    found = report(pairs(30, reply(1.0)))
    assert (found.verdict, found.status) == (Verdict.UNDECIDED, 3)
    assert re.search(r"score, % is undecided: 0.0 points .*; about \d+ cases would decide\.", terminal(found))


def test_a_stopped_run_does_not_pass() -> None:
    found = report(pairs(150, reply(1.0)), planned=400)
    assert found.status == 3
    assert "stopped after 150 of 400 turns" in terminal(found)


def test_answers_that_were_not_judged_are_left_out_and_too_many_leave_no_verdict() -> None:
    def one_in(rate: int) -> Report:
        return report(pairs(150, lambda number: reply(None if number % rate == 0 else 1.0)))

    few, many = one_in(30), one_in(3)
    assert few.status == 0
    assert "5 answers could not be judged" in few.notes[0]
    assert many.status == 2
    assert "could not be judged (first: judge could not judge: no verdict)" in str(many.unusable)


def test_failed_requests_count_even_where_scores_are_low() -> None:
    failed = Reply(Answer(error="status 500: boom"), CaseScore(0.0, False, (), ("no answer: boom",)))
    given = pairs(100, lambda number: failed if number % 3 == 0 else reply(0.0), reply(0.0))
    assert report(given).verdicts["quality"] == Verdict.WORSE
    assert report(given, gates=("latency",)).verdicts["quality"] == Verdict.WORSE


def test_tokens_and_cost_are_compared() -> None:
    rows = {row.key: row for row in report(pairs(30, reply(1.0, output_tokens=6))).rows}
    tokens, cost = rows["output_tokens"].change, rows["cost"].change
    assert tokens is not None
    assert cost is not None
    assert tokens.estimate == 2.0
    assert cost.estimate == pytest.approx((10 + 12) / (10 + 6))


def test_time_per_token_does_not_depend_on_how_tokens_are_bundled() -> None:
    single = reply(1.0, itl_s=(0.02,) * 8, output_tokens=9)
    bundled = reply(1.0, itl_s=(0.04,) * 4, output_tokens=9)
    change = {row.key: row.change for row in report(pairs(30, bundled, single)).rows}["itl"]
    assert change is not None
    assert change.estimate == pytest.approx(1.0)


def test_one_target_alone_has_figures_and_no_verdict() -> None:
    given = [Pair(pair.case, pair.turn, pair.candidate) for pair in pairs(30, reply(1.0))]
    found = make_report("suite", TARGETS[1:], given, 30, Choices())
    assert (found.verdict, found.status) == (None, 0)
    assert "No verdict: one target alone" in terminal(found)


# ---- an earlier report -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "verdict"), [(1.0, Verdict.NOT_WORSE), (1.1, Verdict.NOT_WORSE), (1.5, Verdict.WORSE)]
)
def test_times_are_compared_with_an_earlier_report(scale: float, verdict: Verdict) -> None:
    former = former_times(as_json(report(pairs(40, lambda number: reply(1.0, 1 + 0.01 * (number % 5))))))
    now = pairs(40, lambda number: reply(1.0, scale * (1 + 0.01 * (number % 3))))
    alone = [Pair(pair.case, pair.turn, pair.candidate) for pair in now]
    found = make_report("suite", TARGETS[1:], alone, 40, Choices(former=former))
    assert found.verdicts == {"latency against the earlier report": verdict}
    change = {row.key: row.change for row in found.rows}["former_ttft"]
    assert change is not None
    assert change.estimate == pytest.approx(scale, rel=0.03)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "schema_version: expected 1, got None"),
        ('{"schema_version": 99}', "schema_version: expected 1, got 99"),
        ('{"schema_version": 1, "cases": []}', "cases: expected a list"),
        ('{"schema_version": 1, "cases": [{}]}', r"cases\[0\].id: expected a text"),
        (
            '{"schema_version": 1, "cases": [{"id": "a"}]}',
            r"cases\[0\].times_s.candidate: expected an object",
        ),
        (
            '{"schema_version": 1, "cases": [{"id": "a", "times_s": {"candidate": {"ttft": -1}}}]}',
            r"cases\[0\].times_s.candidate.ttft: expected seconds above 0",
        ),
    ],
)
def test_what_is_no_report_is_refused_by_its_key(text: str, message: str) -> None:
    with pytest.raises(FormerError, match=message):
        former_times(text)


# ---- files -----------------------------------------------------------------------------------------------


def evil(keep_texts: bool) -> Report:
    """All that comes from outside is hostile."""
    targets = (Target("baseline", EVIL, "http://a"), Target("candidate", "m", "http://b", prompt=EVIL))
    given = pairs(25, reply(0.5, text=EVIL), name=EVIL, tags=(EVIL,))
    given += pairs(5, Reply(Answer(error=EVIL), CaseScore(0.0, False, (), (EVIL,))), name="broken")
    return make_report(EVIL, targets, given, 40, Choices(), keep_texts=keep_texts)


class Page(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("keep_texts", [False, True])
def test_no_answer_becomes_a_tag_of_the_page_and_nothing_is_loaded(keep_texts: bool) -> None:
    text = as_page(evil(keep_texts))
    page = Page(text)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "a"}
    assert not page.attributes & {"src", "href", "onerror", "onload"}
    assert "default-src 'none'" in text
    assert text.count("<svg") >= 4
    assert ("alert(1)" in text.partition("<h2>Answers")[2]) == keep_texts


@pytest.mark.parametrize("keep_texts", [False, True])
def test_no_answer_becomes_a_tag_or_a_cell_of_markdown(keep_texts: bool) -> None:
    lines = markdown(evil(keep_texts)).splitlines()
    outside_code = [line for line in lines if not line.startswith("    ")]
    assert not [line for line in outside_code if "<" in line]
    rows = [line for line in outside_code if line.startswith("|") and "case" in line]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows[1:2]} <= {6, 7}


def test_junit_is_xml_whatever_the_texts_are() -> None:
    root = ElementTree.fromstring(as_junit(evil(True)))
    names = [(case.get("classname"), case.get("name")) for case in root]
    assert names[:2] == [("verdict", "quality"), ("verdict", "latency")]
    assert int(root.get("failures", "0")) == len(root.findall("testcase/failure")) == 1
    assert root.get("errors") == "0"  # single cases say nothing where two targets are compared


def test_json_has_the_figures_and_no_texts_unless_asked_for() -> None:
    closed, open_ = json.loads(as_json(evil(False))), json.loads(as_json(evil(True)))
    assert closed["schema_version"] == 1
    assert closed["figures"]["score"]["change"]["estimate"] == pytest.approx(-(25 * 0.5 + 5) / 30)
    assert closed["exit_status"] == 1
    assert "answers" not in closed["cases"][0]
    assert "reasons" not in closed["cases"][0]
    assert closed["cases"][0]["failed_by"] == "exact"
    assert open_["cases"][0]["answers"]["candidate"] == EVIL
