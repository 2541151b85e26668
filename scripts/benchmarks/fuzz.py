"""100,000 wrong requests over every route (no WebSocket): 5xx of our own, hangs, dead processes.

The requests go through HAProxy to a gateway with the scripted engine, embedder, cache, stored responses,
keys and feedback: requests with a wrong part, requests with broken bytes, and requests that schemathesis
makes from `/openapi.json`. A smaller part goes to a real vLLM engine, in the formats of OpenAI and Anthropic.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from benchmarks.engines import scripted_engine
from benchmarks.fuzz_requests import ITEM, NOBODY, Fuzzed, Fuzzer
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.peers.endpoint import admin_token, as_admin, exchange
from benchmarks.peers.processes import scratch_folder
from benchmarks.table import Figure, at_least, at_most, write_report
from benchmarks.team_load import new_key
from deployments.cli.endpoint import CannotConnect, asked

MODEL = "scripted"
EMBEDDER_ID = "minilm"
EMBEDDER = {"id": EMBEDDER_ID, "source": "sentence-transformers/all-MiniLM-L6-v2", "threads": 1}
REQUESTS, FROM_SCHEMA, AT_VLLM = 100_000, 5_000, 2_000
QUICK_SHARE = 50
CONCURRENCY = 32
ANSWER_TIMEOUT_S = 30.0
CUT_TIMEOUT_S = 0.2
"""How long to wait for an answer to a request that may be incomplete: the server may wait for the rest."""

READ = 65_536


@dataclass
class Report:
    """``statuses`` has 0 for a connection that was closed without an answer, which is right for broken
    bytes."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    own_5xx: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.sent += other.sent
        self.statuses += other.statuses
        self.own_5xx += other.own_5xx
        self.hangs += other.hangs
        self.unanswered += other.unanswered


async def fuzz(url: str, requests: Iterable[Fuzzed], concurrency: int = CONCURRENCY) -> Report:
    """Send all requests, each on a new connection."""
    report, waiting = Report(), iter(requests)

    async def client() -> None:
        for request in waiting:
            await _send(url, request, report)

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return report


async def _send(url: str, request: Fuzzed, report: Report) -> None:
    report.sent += 1
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S if request.whole else CUT_TIMEOUT_S):
            answer = await _answer(url, request.data)
    except TimeoutError:
        if request.whole:
            report.hangs.append(shown(request.data, b""))
        report.statuses[-1] += 1
        return
    status = status_of(answer)
    report.statuses[status] += 1
    if is_own_5xx(status, answer):
        report.own_5xx.append(shown(request.data, answer))
    elif status == 0 and request.whole:
        report.unanswered.append(shown(request.data, answer))


async def _answer(url: str, data: bytes) -> bytes:
    """Read until the server closes the connection or the answer is whole."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    received = b""
    try:
        with suppress(ConnectionError):
            writer.write(data)
            while (part := await reader.read(READ)) and not is_whole(received + part):
                received += part
            received += part
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return received


def is_whole(answer: bytes) -> bool:
    """Whether an answer that gives its length is whole."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    _, named, rest = head.lower().partition(b"content-length:")
    return bool(named) and len(body) >= int(rest.partition(b"\r\n")[0])


def status_of(answer: bytes) -> int:
    """The status; 0 for an answer that is not HTTP."""
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    words = answer.partition(b"\r\n")[0].split()
    return int(words[1]) if len(words) > 1 and answer.startswith(b"HTTP/") else 0


def is_own_5xx(status: int, answer: bytes) -> bool:
    """Whether a 5xx is our own error: not a deadline that the request set, nor missing capacity that the
    error names."""
    return status >= 500 and b'"deadline_exceeded"' not in answer and b'"code":"no_replica"' not in answer


def shown(request: bytes, answer: bytes) -> str:
    return f"{request[:1500]!r}\n    -> {answer[:600]!r}"


# ---- from the description ----------------------------------------------------------------------------------


def schema_requests(
    document: dict[str, Any], host: str, models: list[str], each: int, key: str = ""
) -> Iterator[Fuzzed]:
    """Requests that schemathesis makes from the document: ``each`` valid and ``each`` invalid ones per
    operation, with the administrator's token below `/admin`, and else with ``key``."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_dict(with_models(document, models))
    made: list[bytes] = []
    quiet = settings(
        max_examples=each, database=None, deadline=None, phases=[Phase.generate], derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # no operation here is invalid
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @quiet
            @given(case=operation.as_strategy(generation_mode=mode))
            def make(case: Any) -> None:
                made.append(as_bytes(case, host, key))

            with suppress(Exception):  # no part of this operation can be invalid
                make()
    return (Fuzzed("schema", data, whole=True) for data in made)


def with_models(document: dict[str, Any], models: list[str]) -> dict[str, Any]:
    """The document with ``models`` as the only values of `model`."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    for item in changed["paths"].values():
        item.pop("head", None)  # GET without a body
        for operation in item.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                if "model" in content["schema"].get("properties", {}):
                    content["schema"]["properties"]["model"] = {"enum": models}
    return changed


def as_bytes(case: Any, host: str, key: str) -> bytes:
    """The bytes of a schemathesis case."""
    import requests

    arguments = case.as_transport_kwargs(base_url=f"http://{host}")
    names = ("method", "url", "headers", "params", "data", "json", "files", "cookies")
    prepared = requests.Request(**{name: arguments[name] for name in names if name in arguments}).prepare()
    body = prepared.body or b""
    body = body.encode() if isinstance(body, str) else body
    headers = {"host": host, **{str(k).lower(): _text(v) for k, v in prepared.headers.items()}}
    headers |= {"connection": "close", "content-length": str(len(body))}
    secret = admin_token() if case.path.startswith("/admin") else key
    if secret:
        headers["authorization"] = f"Bearer {secret}"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{prepared.method} {prepared.path_url} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "replace") + body


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


# ---- the benchmark -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """``count`` requests, of which about ``from_schema`` are schemathesis's."""

    count: int
    from_schema: int
    seed: int = 1


@dataclass(frozen=True)
class Known:
    """``key``: what clients send, empty where no keys are asked for; ``ids``: what requests may name."""

    key: str = ""
    ids: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}


def made_known(endpoint: Endpoint) -> Known:
    """A key, and things for requests to name: another key, a stored response, a conversation."""
    other = new_key(endpoint, NOBODY)
    own = Known(new_key(endpoint, "fuzzed")["key"])
    said = {"model": MODEL, "input": "Hello"}
    response = asked(f"{endpoint.url}/v1/responses", said, own.headers)
    conversation = asked(f"{endpoint.url}/v1/conversations", {"items": [ITEM]}, own.headers)
    return Known(own.key, (other["id"], response["id"], conversation["id"]))


def is_alive(endpoint: Endpoint, known: Known) -> bool:
    """Whether a valid request is answered and no member has a request left."""
    body = {"model": endpoint.model, "messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
    try:
        asked(f"{endpoint.url}/v1/chat/completions", body, known.headers)
    except CannotConnect:
        return False
    return _in_flight(endpoint.url) == 0


def _in_flight(url: str, within_s: float = 20.0) -> int:
    from urllib.request import Request, urlopen

    deadline = time.monotonic() + within_s
    while True:
        with urlopen(Request(f"{url}/admin/fleet", headers=as_admin()), timeout=10) as response:
            fleet = json.load(response)
        taken = sum(member["in_flight"] for members in fleet.values() for member in members)
        if taken == 0 or time.monotonic() > deadline:
            return int(taken)
        time.sleep(0.2)


def against(endpoint: Endpoint, known: Known, models: list[str], load: Load) -> tuple[Report, bool]:
    host = urlsplit(endpoint.url).netloc
    report = Report()
    if load.from_schema:
        _, body = exchange(endpoint.url, "GET", "/openapi.json")
        document = json.loads(body)
        operations = sum(len(item) for item in document["paths"].values())
        made = schema_requests(
            document, host, models, max(1, load.from_schema // (2 * operations)), known.key
        )
        report.add(asyncio.run(fuzz(endpoint.url, made)))
    fuzzer = Fuzzer(load.seed, host, models, admin_token(), key=known.key, ids=known.ids)
    report.add(asyncio.run(fuzz(endpoint.url, islice(fuzzer, max(0, load.count - report.sent)))))
    return report, is_alive(endpoint, known)


def scripted(load: Load) -> tuple[Report, bool]:
    with scripted_engine(MODEL, 8, 1.0) as engine, scratch_folder() as folder:
        upstream = {"name": "engine", "url": f"{engine.url}/v1", "kind": "vllm", "max_requests": 256}
        settings = {
            "models": [{"id": MODEL, "upstreams": [upstream]}],
            "embedder": EMBEDDER,
            "cache": {"race": False},
            "auth": {"accounts": True},
            "accounts": {"path": str(folder / "accounts")},
            "feedback": {"path": str(folder / "feedback")},
            # Some requests ask for endless answers, which run until this time is over.
            "limits": {"request_timeout_s": ANSWER_TIMEOUT_S / 2},
        }
        with promptly(settings) as endpoint:
            return against(endpoint, made_known(endpoint), [MODEL, EMBEDDER_ID], load)


def real(load: Load) -> tuple[Report, bool]:
    from benchmarks.vllm_load import MODEL as SMALL
    from benchmarks.vllm_load import managed_model

    limits = {"request_timeout_s": ANSWER_TIMEOUT_S / 2}
    with promptly({"models": [managed_model()], "limits": limits}) as endpoint:
        return against(endpoint, Known(), [SMALL], load)


def run(options: Options) -> list[Figure]:
    """Make one pass: a repeat with the same seed would find the same."""
    share = QUICK_SHARE if options.quick else 1
    figures: list[Figure] = []
    findings: list[str] = []
    for series, application, count, from_schema in (
        ("scripted engine", scripted, REQUESTS, FROM_SCHEMA),
        ("vLLM", real, AT_VLLM, AT_VLLM // 4),
    ):
        report, alive = application(Load(count // share, from_schema // share))
        figures += figures_of(series, report, alive)
        findings += report.own_5xx + report.hangs + report.unanswered
        print(series, dict(report.statuses))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "fuzz-findings.txt").write_text("\n\n".join(findings), encoding="utf-8")
    write_report(options.out, "fuzz", figures, about={"seed": "1", "connections": str(CONCURRENCY)})
    return figures


def figures_of(series: str, report: Report, alive: bool) -> list[Figure]:
    def figure(name: str, value: float, target: Any = None) -> Figure:
        return Figure(name, "", (float(value),), target, series)

    return [
        figure("fuzzed requests", report.sent),
        figure("5xx that are ours", len(report.own_5xx), at_most(0)),
        figure("hangs", len(report.hangs), at_most(0)),
        figure("whole requests without an answer", len(report.unanswered), at_most(0)),
        figure("alive afterwards", float(alive), at_least(1)),
    ]
