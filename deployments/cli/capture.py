"""Captured requests of a running endpoint.

    promptly capture list --tenant acme
    promptly capture export --file yesterday.jsonl
    promptly capture export --otlp http://127.0.0.1:4318/v1/traces --content
    promptly capture erase --tenant acme
    promptly capture suggest

`suggest` says what captured requests, feedback and the cache's counters say to change. A file has a request
with its answer in each line, and is for this user only. `--otlp` sends a span for each request, as Langfuse
and Phoenix take it; texts of requests and answers only with `--content`. Headers for it, such as keys, stand
in OTEL_EXPORTER_OTLP_HEADERS. The key of an administrator, or of a team's own administrator for that team, is
read from PROMPTLY_ADMIN_KEY, PROMPTLY_ADMIN_TOKEN or the file that --key-file names.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from deployments.cli.endpoint import Administrator, CannotConnect, add_endpoint, shown
from serve_app.feedback.spans import span_attributes, span_ids, span_name, span_times
from serve_app.file_errors import said_of

PATH = "/admin/captures"
SUGGESTIONS = "/admin/suggestions"
PAGE = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly capture``."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = commands.add_parser("list", help="what was captured, the oldest first, without texts")
    export = commands.add_parser("export", help="to a file, or by OTLP")
    target = export.add_mutually_exclusive_group(required=True)
    target.add_argument("--file", metavar="FILE", help="JSON lines with texts; it is replaced")
    target.add_argument("--otlp", metavar="URL", help="such as http://127.0.0.1:4318/v1/traces")
    export.add_argument("--content", action="store_true", help="send texts by OTLP, too")
    erase = commands.add_parser("erase", help="forget what was captured of a tenant")
    erase.add_argument("--tenant", required=True)
    for one in (found, export):
        one.add_argument("--tenant", help="only this one")
        one.add_argument("--model", help="only this one")
        one.add_argument(
            "--experiment", metavar="NAME=ARM", help="only what this arm of an experiment answered"
        )
    suggest = commands.add_parser("suggest", help="what the numbers say to change, with the evidence")
    for one in (found, export, erase, suggest):
        add_endpoint(one)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return shown(options, _done, _lines)


def _done(options: argparse.Namespace) -> dict[str, Any]:
    if options.action == "suggest":
        return Administrator(options, SUGGESTIONS).asked()
    kept = Administrator(options, PATH)
    if options.action == "erase":
        return kept.asked(f"?{urlencode({'tenant': options.tenant})}", method="DELETE")
    query = {name: value for name in ("tenant", "model") if (value := getattr(options, name)) is not None}
    arm: str | None = options.experiment
    if options.action == "list":
        return {"captures": [each for page in _pages(kept, query, arm) for each in page]}
    if options.file is not None:
        pages = _pages(kept, {**query, "content": "true"}, arm)
        return {"to": options.file, "exported": _to_file(Path(options.file), pages)}
    pages = _pages(kept, {**query, "content": "true"} if options.content else query, arm)
    return {"to": options.otlp, "exported": sum(map(_sender(options.otlp), pages))}


def _pages(kept: Administrator, query: Mapping[str, str], arm: str | None) -> Iterator[list[dict[str, Any]]]:
    """Raises: CannotConnect."""
    after: dict[str, str] = {}
    while True:
        page = kept.asked(f"?{urlencode({**query, **after, 'limit': PAGE})}")
        yield [each for each in page["captures"] if arm in (None, (each["request"] or {}).get("experiment"))]
        if page["next"] is None:
            return
        after = {"after": page["next"]}


def _to_file(path: Path, pages: Iterator[list[dict[str, Any]]]) -> int:
    """Whole or not at all. Raises: ValueError."""
    new, count = path.with_name(f"{path.name}.new"), 0
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            for page in pages:
                for capture in page:
                    file.write(json.dumps(capture) + "\n")
                count += len(page)
        new.replace(path)
    except OSError as error:
        raise ValueError(f"{path}: {said_of(error)}") from error
    return count


def _sender(url: str) -> Callable[[list[dict[str, Any]]], int]:
    """Sends a page of captures; raises CannotConnect where the other end does not take it."""
    # Here, not at the top: no other command needs them, and they take a quarter of a second.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    exporter = OTLPSpanExporter(endpoint=url, timeout=30)
    resource = Resource.create({"service.name": "promptly"})

    def send(captures: list[dict[str, Any]]) -> int:
        spans = []
        for each in captures:
            (trace_id, span_id), (start, end) = span_ids(each), span_times(each)
            context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))
            spans.append(
                ReadableSpan(
                    name=span_name(each),
                    context=context,
                    resource=resource,
                    attributes=span_attributes(each),
                    kind=SpanKind.SERVER,
                    start_time=start,
                    end_time=end,
                )
            )
        if spans and exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise CannotConnect(f"{url}: the spans were not taken.")
        return len(spans)

    return send


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if "to" in answer:
        yield f"{answer['to']}: {answer['exported']} requests"
        return
    if "suggestions" in answer:
        looked = f"{answer['captures']} captured requests and {answer['feedback']} pieces of feedback"
        yield f"{len(answer['suggestions'])} suggestions from the newest {looked}."
        for each in answer["suggestions"]:
            yield f"\n{each['about']}: {each['advice']}"
            yield f"  Evidence: {each['evidence']}"
            yield f"  Effect: {each['effect']}"
        return
    if "erased" in answer:
        yield f"{answer['tenant']}: {answer['erased']} captures are erased"
        return
    for each in answer["captures"]:
        arm = (each["request"] or {}).get("experiment") or ""
        words = (str(each[name]) for name in ("at", "tenant", "request_id", "model", "size"))
        yield "  ".join((*words, arm)).rstrip()
