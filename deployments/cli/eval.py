"""Evaluate a model on a suite of cases, alone or against another one: quality, times, tokens, cost.

    promptly eval config/golden/small-model.yaml --candidate smollm2-135m-instruct
    promptly eval SUITE --baseline qwen3-8b --candidate qwen3-8b-fp8 --html report.html --json report.json
    promptly eval SUITE --candidate qwen3-8b --latency-baseline last-week.json --gates latency
    promptly eval --replay yesterday.jsonl --baseline qwen3-8b --candidate qwen3-8b-fp8

Both targets are asked every case one after the other, in an order that is drawn, with the cache bypassed.
`--replay` asks what `promptly capture export --file` wrote, each request at the time at which it came; the
answers of then are what is expected, and alone a candidate's times are compared with those of then. Ctrl-C
ends the run and reports what there is.

Exit status: 0 not worse (or nothing to compare), 1 worse, 2 bad input, or a run that says nothing because a
target or the judge is down, 3 undecided, or stopped before the end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.cli.endpoint import DEFAULT_URL
from deployments.evaluation.command import Asked, evaluate
from deployments.evaluation.runner import Plan, RunError
from deployments.evaluation.services import Place
from serve_app.clients import KEY_VARIABLE
from serve_app.errors import SuiteError
from serve_app.evaluation.case import Assertion
from serve_app.evaluation.report import BAD_INPUT, FORMER_MARGIN, GATES, Choices, Report
from serve_app.evaluation.suite import Suite, load_suite
from serve_app.evaluation.target import BASELINE, CANDIDATE, Target, TargetError, check_bodies
from serve_app.evaluation.traffic import Traffic, traffic_in
from serve_app.evaluation.verdict import SCORE_MARGIN, TIME_MARGIN
from serve_app.evaluation.writers.documents import FormerError, as_json, as_junit, former_times
from serve_app.evaluation.writers.page import as_page
from serve_app.evaluation.writers.tables import markdown, terminal
from serve_app.file_errors import said_of
from serve_app.suggestions.contract import Observed
from serve_app.suggestions.registry import suggestions_of

ROLES = (BASELINE, CANDIDATE)
WRITERS = {"markdown": markdown, "json": as_json, "junit": as_junit, "html": as_page}
LIMIT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly eval``."""
    parser.add_argument("suite", type=Path, nargs="?", help="a file of cases (docs/evaluation.md)")
    replay = parser.add_argument_group("replay")
    replay.add_argument("--replay", type=Path, metavar="FILE", help="captured requests, instead of a suite")
    replay.add_argument("--speed", type=_positive, default=1.0, help="2: twice as fast as they came")
    parser.add_argument("--format", help="of the suite; default: by what the file holds")
    parser.add_argument(
        "--assert",
        dest="assertions",
        action="append",
        type=_assertion,
        metavar="SCORER",
        help="for cases without assertions of their own, and for a replay (default: similar): a name, "
        "or JSON with options; repeatable",
    )
    parser.add_argument("--tag", action="append", default=[], help="only cases with this tag; repeatable")
    parser.add_argument("--limit", type=_count, metavar="N", help="only the first N cases")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"of every endpoint; default: {DEFAULT_URL}")
    for role in ROLES:
        _add_target(parser, role)
    for name, about in (("judge", "model that judges"), ("embedder", "model of embeddings")):
        group = parser.add_argument_group(name)
        group.add_argument(f"--{name}-model", metavar="MODEL", help=f"the {about}")
        group.add_argument(f"--{name}-url", metavar="URL", help="default: --url")
        group.add_argument(f"--{name}-key-env", metavar="NAME", help="environment variable with its key")
    run = parser.add_argument_group("run")
    run.add_argument("--repeats", type=_count, default=1, help="of each case (default: %(default)s)")
    run.add_argument("--concurrency", type=_count, default=1, help="pairs in flight (default: %(default)s)")
    run.add_argument(
        "--warm-up", type=_count_or_0, default=1, help="uncounted requests (default: %(default)s)"
    )
    run.add_argument("--timeout", type=_positive, default=LIMIT_S, help="seconds of one answer")
    run.add_argument("--seed", type=int, default=0, help="of the order and the bootstrap")
    gates = parser.add_argument_group("verdicts")
    gates.add_argument("--gates", default=",".join(GATES), help="what is judged (default: %(default)s)")
    gates.add_argument(
        "--margin", type=_positive, default=100 * SCORE_MARGIN, help="points of score (default: %(default)s)"
    )
    gates.add_argument(
        "--time-margin", type=_positive, default=100 * TIME_MARGIN, help="percent (default: %(default)s)"
    )
    gates.add_argument("--latency-baseline", type=Path, metavar="FILE", help="JSON of an earlier report")
    gates.add_argument(
        "--latency-baseline-margin",
        type=_positive,
        default=100 * FORMER_MARGIN,
        metavar="PERCENT",
        help="default: %(default)s",
    )
    out = parser.add_argument_group("report")
    for name in WRITERS:
        out.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write {name}")
    out.add_argument("--answers", action="store_true", help="files hold the answers' texts, too")
    out.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run_command)


def _assertion(text: str) -> Any:
    """``contains``, or ``{"scorer": "similar", "threshold": 0.7}``."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None


def _add_target(parser: argparse.ArgumentParser, role: str) -> None:
    group = parser.add_argument_group(role)
    group.add_argument(f"--{role}", metavar="MODEL", required=role == CANDIDATE, help="the model")
    group.add_argument(f"--{role}-url", metavar="URL", help="of its endpoint; default: --url")
    group.add_argument(
        f"--{role}-key-env",
        metavar="NAME",
        help=f"environment variable with its key; default for --url: {KEY_VARIABLE}, if set",
    )
    group.add_argument(
        f"--{role}-set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of its requests, such as temperature=0.7; repeatable",
    )
    group.add_argument(f"--{role}-prompt", metavar="ID[@VERSION]", help="a prompt; a label is a version")
    group.add_argument(
        f"--{role}-price", metavar="IN,OUT", help="of a million prompt and output tokens, for cost"
    )


def run_command(options: argparse.Namespace) -> int:
    try:
        asked = asked_for(options)
        _check_files(options)
        report = evaluate(asked, options.quiet)
    except (SuiteError, TargetError, FormerError, RunError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    print(terminal(report))
    return _write(report, options)


def asked_for(options: argparse.Namespace) -> Asked:
    """Everything that the command line says, checked before the first request.

    Raises:
        SuiteError, TargetError, FormerError: the message names file, line and key, or the option.
    """
    suite, traffic = _asked_of(options)
    targets = [_target(options, role) for role in ROLES if getattr(options, role)]
    cases = _chosen(suite, options)
    check_bodies(targets, cases)
    arrivals = [each / options.speed for each in traffic.arrivals[: len(cases)]] if traffic else []
    former = _former(options.latency_baseline)
    if former is None and traffic is not None and len(targets) == 1:
        former = traffic.former
    return Asked(
        suite=suite.name,
        targets=targets,
        plan=Plan(
            cases,
            options.repeats,
            options.concurrency,
            options.warm_up,
            options.seed,
            arrivals,
        ),
        choices=Choices(
            gates=_gates(options.gates),
            score_margin=options.margin / 100,
            time_margin=options.time_margin / 100,
            former=former,
            former_margin=options.latency_baseline_margin / 100,
            seed=options.seed,
        ),
        judge=_place(options, "judge"),
        embedder=_place(options, "embedder"),
        limit_s=options.timeout,
        keep_texts=options.answers,
        notes=() if traffic is None else tuple(_suggested(traffic)),
    )


def _asked_of(options: argparse.Namespace) -> tuple[Suite, Traffic | None]:
    """Raises: SuiteError, TargetError."""
    if (options.suite is None) == (options.replay is None):
        raise TargetError("expected a suite, or --replay FILE")
    if options.replay is None:
        return load_suite(options.suite, options.format, assertions=options.assertions), None
    if options.tag or options.repeats > 1:
        raise TargetError("--replay: without --tag and --repeats, each request once and at its time")
    path = options.replay
    try:
        with path.open(encoding="utf-8") as lines:
            traffic = traffic_in(lines, str(path), _assertions(options))
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: {said_of(error)}") from None
    if traffic.left_out:
        print(f"{path}: {traffic.left_out} requests are no complete chats", file=sys.stderr)
    return Suite(path.stem, traffic.cases, source=str(path)), traffic


def _suggested(traffic: Traffic) -> Iterator[str]:
    """What the requests that are replayed say to change."""
    named = [each for each in traffic.captured if "tenant" in each and "model" in each]
    for each in suggestions_of(Observed(captures=named)):
        found = f"{each.advice} Evidence: {each.evidence} Effect: {each.effect}"
        yield f"suggestion for {each.about}: {found}".rstrip(".")


def _assertions(options: argparse.Namespace) -> tuple[Assertion, ...]:
    """Scorers of answers that are compared with the captured ones."""
    found = []
    for given in options.assertions or ["similar"]:
        fields = {"scorer": given} if isinstance(given, str) else dict(given)
        name, weight = str(fields.pop("scorer", "")), float(fields.pop("weight", 1.0))
        found.append(Assertion(name, fields, weight))
    return tuple(found)


def _chosen(suite: Suite, options: argparse.Namespace) -> Sequence[Any]:
    """Raises: TargetError: no case is left."""
    cases = [case for case in suite.cases if not options.tag or set(options.tag) & set(case.tags)]
    if not cases:
        known = sorted({tag for case in suite.cases for tag in case.tags})
        raise TargetError(
            f"--tag {', '.join(options.tag)}: no case has it; known: {', '.join(known) or 'none'}"
        )
    return cases[: options.limit]


def _target(options: argparse.Namespace, role: str) -> Target:
    """Raises: TargetError: an option is wrong."""
    given = {name: getattr(options, f"{role}_{name}") for name in ("url", "key_env", "prompt", "price")}
    price = _price(role, given["price"])
    return Target(
        role=role,
        model=getattr(options, role),
        url=given["url"] or options.url,
        key_variable=_key_variable(given["key_env"], given["url"]),
        settings=_settings(role, getattr(options, f"{role}_set")),
        prompt=given["prompt"],
        price_in=price[0],
        price_out=price[1],
    )


def _key_variable(named: str | None, own_url: str | None) -> str | None:
    """The key of the own endpoint is sent to no other one."""
    if named is not None or own_url is not None:
        return named
    return KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else None


def _settings(role: str, given: Sequence[str]) -> Mapping[str, Any]:
    """Values are JSON, or else texts. Raises: TargetError: there is no ``=``."""
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise TargetError(f"--{role}-set {item!r}: expected FIELD=VALUE, such as temperature=0.7")
        if name in ("model", "messages", "stream", "stream_options"):
            raise TargetError(f"--{role}-set {name}: the run sets this field itself")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _price(role: str, given: str | None) -> tuple[float | None, float | None]:
    """Raises: TargetError."""
    if given is None:
        return None, None
    try:
        price_in, price_out = (float(part) for part in given.split(","))
    except ValueError:
        price_in = price_out = math.nan
    if not (0 <= price_in < math.inf and 0 <= price_out < math.inf):
        raise TargetError(f"--{role}-price {given!r}: expected two numbers, such as 0.15,0.60")
    return price_in, price_out


def _place(options: argparse.Namespace, name: str) -> Place | None:
    model, url, key = (getattr(options, f"{name}_{part}") for part in ("model", "url", "key_env"))
    if model is None:
        if url or key:
            raise TargetError(f"--{name}-model is missing")
        return None
    # Checks the URL as that of a target.
    Target(name, model, url or options.url)
    return Place(f"--{name}", model, url or options.url, _key_variable(key, url))


def _gates(given: str) -> tuple[str, ...]:
    """Raises: TargetError: one is unknown."""
    found = tuple(filter(None, (part.strip() for part in given.split(","))))
    if unknown := set(found) - set(GATES):
        raise TargetError(f"--gates {', '.join(sorted(unknown))}: expected {' or '.join(GATES)}, or both")
    return found


def _former(path: Path | None) -> Mapping[str, Mapping[str, float]] | None:
    """Raises: FormerError: the file cannot be read, or is no report."""
    if path is None:
        return None
    try:
        return former_times(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FormerError(f"--latency-baseline {path}: {said_of(error)}") from None
    except FormerError as error:
        raise FormerError(f"--latency-baseline {path}: {error}") from None


def _check_files(options: argparse.Namespace) -> None:
    """Before the run. Raises: TargetError: a folder is missing."""
    for name in WRITERS:
        path: Path | None = getattr(options, name)
        if path is not None and not path.parent.is_dir():
            raise TargetError(f"--{name} {path}: there is no folder {path.parent}")


def _write(report: Report, options: argparse.Namespace) -> int:
    for name, writer in WRITERS.items():
        path: Path | None = getattr(options, name)
        try:
            if path is not None:
                path.write_text(writer(report), encoding="utf-8")
        except OSError as error:
            print(f"--{name} {path}: {said_of(error)}", file=sys.stderr)
            return BAD_INPUT
    return report.status


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return int(text)


def _count_or_0(text: str) -> int:
    return 0 if text == "0" else _count(text)
