"""How often a running cache answers, and how often wrongly: a stream of requests with known right answers.

    python scripts/replay_cache.py [--pairs FILE.jsonl] [--requests 5000] [--max-error-rate 0.02]

Starts Promptly in front of a server that knows the answers, and sends it repeats, paraphrases and look-alikes
(`cache_stream.py`), once without and once with the learned bound; or, with `--url`, sends them once to an
endpoint that runs already (whose model answers as it likes; an admin key is read from PROMPTLY_ADMIN_KEY or
PROMPTLY_ADMIN_TOKEN).
A semantic hit is wrong where the entry's text and the request's have different meanings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers import Endpoint, promptly
from benchmarks.peers.endpoint import local_url
from cache_cosines import EMBEDDER, SHIPPED_DTYPE
from cache_mixes import LabelledPair, read_pairs, wilson
from cache_stream import Meanings, Question, answer_to, stream
from launcher.plan import free_port

from serve_app.request.admin_token import TOKEN_VARIABLE

OWN_PAIRS = Path(__file__).parent / "cache_pairs" / "pairs.jsonl"
MODEL = "oracle"
BLOCK = 250
"""Requests between two points of the report over time."""

ADMIN_KEY = "PROMPTLY_ADMIN_KEY"
WAIT_S = 60.0
LOOKUP_BUDGET_MS = 5000.0
"""A busy machine shall make no misses here."""

MISS, EXACT, RIGHT, WRONG, UNLABELLED = "miss", "exact", "right", "wrong", "wrong, unlabelled"
"""What became of a request. Unlabelled: no pair says that the two texts differ, and none that they do not."""

HITS = (EXACT, RIGHT, WRONG, UNLABELLED)
FALSE = (WRONG, UNLABELLED)


@dataclass
class Replay:
    """What became of each request, in order."""

    name: str
    outcomes: list[str] = field(default_factory=list)
    doubtful: list[tuple[str, str]] = field(default_factory=list)
    """The text asked and the entry's, of the hits that no label judges: for a reader's own eyes."""
    bound: Mapping[str, float] = field(default_factory=dict)

    def count(self, *outcomes: str, upto: int | None = None) -> int:
        found = Counter(self.outcomes[:upto])
        return sum(found[outcome] for outcome in outcomes)

    @property
    def semantic_hits(self) -> int:
        return self.count(RIGHT, *FALSE)

    def hit_rate(self, upto: int | None = None) -> float:
        return self.count(*HITS, upto=upto) / max(1, len(self.outcomes[:upto]))

    def false_share(self, upto: int | None = None) -> float:
        """Wrong ones among the semantic hits: a repeat is always right, and would only flatter."""
        return self.count(*FALSE, upto=upto) / max(1, self.count(RIGHT, *FALSE, upto=upto))

    def values(self) -> dict[str, Any]:
        interval = wilson(self.count(*FALSE), self.semantic_hits)
        return {
            "name": self.name,
            "requests": len(self.outcomes),
            "outcomes": dict(Counter(self.outcomes)),
            "hit_rate": self.hit_rate(),
            "semantic_hit_rate": self.semantic_hits / max(1, len(self.outcomes)),
            "false_share_of_semantic_hits": self.false_share(),
            "false_share_95": [interval.low, interval.high],
            "false_share_of_all_hits": self.count(*FALSE) / max(1, self.count(*HITS)),
            "over_time": [
                {"requests": end, "hit_rate": self.hit_rate(end), "false_share": self.false_share(end)}
                for end in range(BLOCK, len(self.outcomes) + 1, BLOCK)
            ],
            "unlabelled": [list(pair) for pair in self.doubtful],
            "bound": dict(self.bound),
        }


class Client:
    """One endpoint, asked one request after the other; entries' texts are looked up once."""

    def __init__(self, http: aiohttp.ClientSession, model: str, meanings: Meanings) -> None:
        self._http = http
        self._model = model
        self._meanings = meanings
        self._texts: dict[str, str] = {}
        self.doubtful: list[tuple[str, str]] = []

    async def outcome(self, question: Question) -> str:
        message = {"role": "user", "content": question.text}
        body = {"model": self._model, "messages": [message], "max_tokens": 64, "temperature": 0}
        async with self._http.post("/v1/chat/completions", json=body) as response:
            answer = await response.text()
            if response.status != 200:
                raise RuntimeError(f"{response.status} {answer[:300]}")
            tier, entry = response.headers["x-cache"], response.headers.get("x-cache-entry")
        if tier != "semantic" or entry is None:
            return EXACT if tier == "exact" else MISS
        return self._judge(question, await self._text(entry))

    async def bound(self) -> Mapping[str, float]:
        async with self._http.get("/admin/cache") as response:
            found: dict[str, float] = (await response.json()).get("bound", {})
            return found

    async def _text(self, entry: str) -> str:
        if entry not in self._texts:
            async with self._http.get("/admin/cache", params={"id": entry}) as response:
                found = (await response.json())["entries"]
            self._texts[entry] = found[0]["text"] if found else ""
        return self._texts[entry]

    def _judge(self, question: Question, text: str) -> str:
        if text in self._meanings and self._meanings[text] == question.meaning:
            return RIGHT
        if self._meanings.is_labelled(question.text, text):
            return WRONG
        self.doubtful.append((question.text, text))
        return UNLABELLED


class Oracle:
    """An OpenAI-compatible server that gives every text its meaning's answer. Runs on a thread of its own."""

    def __init__(self, pairs: Sequence[LabelledPair], seed: int, variation: float) -> None:
        self.url = local_url(port := free_port())
        self._meanings = Meanings(pairs)
        self._random = Random(seed)
        self._variation = variation
        self._port = port
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def running(self) -> Iterator[Oracle]:
        thread = threading.Thread(target=self._loop.run_forever, name="oracle", daemon=True)
        thread.start()
        runner = web.AppRunner(self._app())
        self._do(runner.setup())
        self._do(web.TCPSite(runner, "127.0.0.1", self._port).start())
        try:
            yield self
        finally:
            self._do(runner.cleanup())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(WAIT_S)
            self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text = body["messages"][-1]["content"]
        known = text in self._meanings
        said = answer_to(self._meanings[text], self._random, self._variation) if known else "Yes."
        if body.get("stream"):
            return await self._stream(request, said)
        return web.json_response(_completion(said))

    async def _stream(self, request: web.Request, said: str) -> web.StreamResponse:
        """For the check that starts every endpoint; the replay itself does not stream."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": said}, "finish_reason": "stop"}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
        }
        await response.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return response


def _completion(said: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": uuid4().hex,
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }


def settings_for(oracle: Oracle, max_error_rate: float | None) -> dict[str, Any]:
    """The decision that is the default; the look-up goes first, so that only it says what is a hit."""
    cache = {"race": False, "lookup_budget_ms": LOOKUP_BUDGET_MS, "max_error_rate": max_error_rate}
    return {
        "auth": "loopback",
        "models": [{"id": MODEL, "upstreams": [{"name": "oracle", "url": f"{oracle.url}/v1"}]}],
        "embedder": {"id": "embedder", "source": EMBEDDER, "dtype": SHIPPED_DTYPE},
        "cache": cache,
    }


async def replay(name: str, endpoint: Endpoint, questions: Sequence[Question], meanings: Meanings) -> Replay:
    """Send the questions one after the other."""
    key = os.environ.get(ADMIN_KEY) or os.environ.get(TOKEN_VARIABLE)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    found = Replay(name)
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with aiohttp.ClientSession(endpoint.url, headers=headers, timeout=timeout) as http:
        client = Client(http, endpoint.model, meanings)
        for number, question in enumerate(questions, 1):
            found.outcomes.append(await client.outcome(question))
            if number % (4 * BLOCK) == 0:
                print(f"{name}: {number} of {len(questions)}", file=sys.stderr, flush=True)
        found.bound = await client.bound()
    found.doubtful = client.doubtful
    return found


def replay_locally(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    """Without and with the bound, each on an empty store; the same requests."""
    questions, meanings = list(stream(pairs, options.requests, options.seed)), Meanings(pairs)
    found = []
    for rate in (None, options.max_error_rate):
        name = "default decision" if rate is None else f"with max_error_rate {rate:g}"
        with (
            Oracle(pairs, options.seed, options.variation).running() as oracle,
            promptly(settings_for(oracle, rate)) as endpoint,
        ):
            found.append(asyncio.run(replay(name, endpoint, questions, meanings)))
    return found


def replay_remotely(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    questions, meanings = list(stream(pairs, options.requests, options.seed)), Meanings(pairs)
    endpoint = Endpoint(options.url, options.url, options.model, ())
    return [asyncio.run(replay(options.url, endpoint, questions, meanings))]


def markdown(source: str, replays: Sequence[Replay]) -> str:
    head = "| | requests | hit rate | semantic hits | wrong among them (95 %) | of which labelled |"
    lines = [f"# Semantic cache under a stream of requests made of {source}\n", head, "|---" * 6 + "|"]
    for each in replays:
        low, high = each.values()["false_share_95"]
        share = f"{100 * each.false_share():.1f} % ({100 * low:.1f}–{100 * high:.1f})"
        lines.append(
            f"| {each.name} | {len(each.outcomes)} | {100 * each.hit_rate():.1f} % | {each.semantic_hits} "
            f"| {share} | {each.count(WRONG)} |"
        )
    if len(replays) == 2 and replays[0].hit_rate():
        ratio = replays[1].hit_rate() / replays[0].hit_rate()
        semantic = replays[1].semantic_hits / max(1, replays[0].semantic_hits)
        lines.append(
            f"\nHit rate with the bound over that without: {ratio:.2f} × (semantic hits {semantic:.2f} ×)."
        )
    return "\n".join(lines) + "\n"


def plot(replays: Sequence[Replay], path: Path) -> None:
    """Hit rate and false share, from the first request on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 6), sharex=True)
    for each in replays:
        points = each.values()["over_time"]
        requests = [point["requests"] for point in points]
        above.plot(requests, [100 * point["hit_rate"] for point in points], label=each.name)
        below.plot(requests, [100 * point["false_share"] for point in points], label=each.name)
    above.set(ylabel="hits among requests so far, %")
    below.set(ylabel="wrong among semantic hits so far, %", xlabel="requests")
    for axes in (above, below):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=OWN_PAIRS)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--max-error-rate", type=float, default=0.02)
    parser.add_argument("--variation", type=float, default=0.2, help="share of answers that are worded anew")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--url", help="an endpoint that runs already, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default=MODEL, help="the model to ask for at --url")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    options = parser.parse_args()
    if not 0 < options.max_error_rate < 0.5:
        parser.error("--max-error-rate: a share above 0 and below 0.5")
    if not 0 <= options.variation <= 1:
        parser.error("--variation: a share from 0 to 1")
    if options.requests < 1:
        parser.error("--requests: 1 or more")
    return options


def main() -> None:
    options = arguments()
    try:
        pairs = read_pairs(options.pairs)
    except (OSError, ValueError) as error:
        sys.exit(f"replay_cache: {error}")
    if not pairs:
        sys.exit(f"replay_cache: {options.pairs} holds no pairs")
    replays = replay_remotely(options, pairs) if options.url else replay_locally(options, pairs)
    options.out.mkdir(parents=True, exist_ok=True)
    text = markdown(options.pairs.name, replays)
    (options.out / "replay_cache.md").write_text(text, encoding="utf-8")
    values = json.dumps([each.values() for each in replays], indent=1)
    (options.out / "replay_cache.json").write_text(values, encoding="utf-8")
    plot(replays, options.out / "replay_cache.png")
    print(text)
    print(f"Written to {options.out}/replay_cache.md, .json and .png")


if __name__ == "__main__":
    main()
