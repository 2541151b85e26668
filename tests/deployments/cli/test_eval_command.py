"""``promptly eval`` from its command line to its files and its exit status."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
import yaml
from sim_engine import Faults, SimSettings
from support.sim import running

from deployments.cli.main import main
from serve_app.evaluation.report import FORMER

ROOT = Path(__file__).parents[3]
FAST = SimSettings(itl_ms=0.5, tokens=4)
PACED = SimSettings(itl_ms=5.0, tokens=4)
"""So slow that its tokens do not come together, and have times between them."""

LIMIT_S = 120.0


def suite(folder: Path, cases: int = 24) -> Path:
    path = folder / "suite.yaml"
    given = [
        {
            "id": f"case-{number}",
            "prompt": f"Question {number}",
            "assertions": [{"scorer": "regex", "pattern": "."}],
        }
        for number in range(cases)
    ]
    path.write_text(yaml.safe_dump({"name": "small", "cases": given}))
    return path


async def evaluated(*words: object) -> int:
    """The exit status of the command in a process of its own."""
    process = await started(*words)
    async with asyncio.timeout(LIMIT_S):
        return await process.wait()


async def started(*words: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deployments.cli", "eval", *map(str, words), cwd=ROOT
    )


async def test_one_command_writes_every_report_and_a_second_one_compares_with_it(tmp_path: Path) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "html", "junit", "markdown")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    async with running(PACED) as one:
        target = ("--url", one.url, "--candidate", "sim", "--quiet")
        assert await evaluated(suite(tmp_path, 40), *target, *options) == 0
        again = ("--latency-baseline", files["json"], "--latency-baseline-margin", "100000")
        assert await evaluated(suite(tmp_path, 40), *target, *again, "--json", tmp_path / "second.json") == 0
    assert json.loads(files["json"].read_text())["targets"]["candidate"]["answers"] == 40
    assert all(path.stat().st_size > 500 for path in files.values())
    assert f"{FORMER}_ttft" in json.loads((tmp_path / "second.json").read_text())["figures"]


async def test_a_candidate_that_fails_half_its_requests_gives_status_1(tmp_path: Path) -> None:
    async with running(FAST) as one, running(FAST, Faults(status=500, share=0.5)) as two:
        words = (suite(tmp_path, 40), "--baseline", "sim", "--candidate", "sim", "--url", one.url)
        assert await evaluated(*words, "--candidate-url", two.url) == 1


async def test_ctrl_c_reports_what_there_is_and_gives_status_3(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    async with running(FAST) as one:
        words = (
            suite(tmp_path, 200),
            "--candidate",
            "sim",
            "--url",
            one.url,
            "--repeats",
            "200",
            "--json",
            report,
        )
        process = await started(*words)
        try:
            async with asyncio.timeout(LIMIT_S):
                await one.engine.until(lambda stats: stats.requests > 20)
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 3
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    document = json.loads(report.read_text())
    assert 0 < document["turns"] < document["planned"] == 40_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--candidate-url", "localhost"], "--candidate-url 'localhost': expected http://host:port"),
        (["--candidate-set", "temperature"], "--candidate-set 'temperature': expected FIELD=VALUE"),
        (["--candidate-set", "model=x"], "--candidate-set model: the run sets this field itself"),
        (["--candidate-price", "3"], "--candidate-price '3': expected two numbers"),
        (["--candidate-price", "3,nan"], "--candidate-price '3,nan': expected two numbers"),
        (["--gates", "speed"], "--gates speed: expected quality or latency"),
        (["--tag", "none"], "--tag none: no case has it"),
        (["--judge-url", "http://h"], "--judge-model is missing"),
        (
            ["--candidate-key-env", "NO_SUCH"],
            "--candidate-key-env NO_SUCH: this environment variable is not set",
        ),
        (["--latency-baseline", "no-such.json"], "--latency-baseline no-such.json: "),
        (["--json", "no/such/folder.json"], "--json no/such/folder.json: there is no folder"),
    ],
)
def test_bad_input_gives_status_2_and_names_the_option(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(suite(tmp_path)), "--candidate", "sim", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_suite_gives_status_2_and_names_file_line_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("cases:\n  - id: a\n    promt: Hello\n    expected: b\n")
    assert main(["eval", str(path), "--candidate", "sim"]) == 2
    message = capsys.readouterr().err
    assert "suite.yaml:3" in message
    assert "promt" in message


def test_an_endpoint_that_is_down_gives_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--candidate", "sim", "--url", "http://127.0.0.1:9", "--quiet"]
    assert main(["eval", str(suite(tmp_path)), *words]) == 2
    assert "candidate sim at http://127.0.0.1:9 failed all of its first 5 requests" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--repeats", "0"], ["--margin", "-1"], ["--margin", "x"], ["--limit", "1.5"]]
)
def test_numbers_out_of_range_are_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["eval", str(suite(tmp_path)), "--candidate", "sim", *words])
    assert caught.value.code == 2


async def test_other_assertions_judge_a_data_set_that_has_none(tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"user_input": "Who?", "reference": "Ada"}\n')
    report = tmp_path / "report.json"
    words: list[object] = [samples, "--candidate", "sim", "--quiet", "--json", report]
    words += ["--assert", '{"scorer": "contains", "value": "zebra"}', "--assert", "exact"]
    async with running(FAST) as one:
        assert await evaluated(*words, "--url", one.url) == 0
    assert json.loads(report.read_text())["targets"]["candidate"]["answers"] == 1


def test_an_assertion_that_is_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["eval", str(suite(tmp_path)), "--candidate", "sim", "--assert", "{nose"])


def captured(folder: Path, count: int = 24, gap_s: float = 0.05) -> Path:
    path = folder / "yesterday.jsonl"
    lines = [
        {
            "at": 1000.0 + number * gap_s,
            "request_id": f"r{number}",
            "tenant": "acme",
            "model": "before",
            "asked": {
                "model": "before",
                "messages": [{"role": "user", "content": f"Question {number}"}],
                "max_tokens": 4000,
            },
            "answer": {"text": "an answer", "complete": True},
            "request": {"ttft_ms": 1000.0, "total_ms": 5000.0, "cache": "miss", "output_tokens": 100},
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def test_captured_requests_are_asked_again_at_their_times(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    async with running(FAST) as one:
        words = ("--replay", captured(tmp_path), "--candidate", "sim", "--url", one.url, "--quiet")
        gates = ("--gates", "latency", "--assert", "regex-free-contains")
        assert await evaluated(*words, *gates) == 2  # there is no such scorer
        more = ("--gates", "latency", "--assert", "contains", "--latency-baseline-margin", "100000")
        assert await evaluated(*words, *more, "--json", report) == 0
    document = json.loads(report.read_text())
    assert document["targets"]["candidate"]["answers"] == 24
    assert document["took_s"] >= 1.0
    assert f"{FORMER}_ttft" in document["figures"], "the times of then are compared"
    assert any(
        note.startswith("suggestion for acme / before: Ask for `max_tokens`") for note in document["notes"]
    )


async def test_a_replay_faster_than_it_came_ends_sooner(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    async with running(FAST) as one:
        words = (
            "--replay",
            captured(tmp_path, gap_s=30.0),
            "--candidate",
            "sim",
            "--url",
            one.url,
            "--quiet",
        )
        more = ("--speed", "1000", "--gates", "latency", "--latency-baseline-margin", "100000")
        assert await evaluated(*words, *more, "--assert", "contains", "--json", report) == 0
    assert json.loads(report.read_text())["took_s"] < 30


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a suite, or --replay FILE"),
        (["--replay", "no-such.jsonl"], "no-such.jsonl: "),
        (["--replay", "x.jsonl", "--repeats", "2"], "--replay: without --tag and --repeats"),
    ],
)
def test_a_wrong_replay_gives_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "--candidate", "sim", *words]) == 2
    assert message in capsys.readouterr().err
