"""Send a stream of questions with known answers to an endpoint, and count right and wrong hits."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from cache_lab.rates import wilson
from cache_lab.stream import Meanings, Question
from serve_app.request.admin_token import TOKEN_VARIABLE

BLOCK = 250
"""Requests between two points of the report over time."""

ADMIN_KEY = "PROMPTLY_ADMIN_KEY"
WAIT_S = 60.0

MISS, EXACT, RIGHT, WRONG, UNLABELLED = "miss", "exact", "right", "wrong", "wrong, unlabelled"
"""The outcome of a request. Unlabelled: no pair says whether the two texts mean the same."""

HITS = (EXACT, RIGHT, WRONG, UNLABELLED)
FALSE = (WRONG, UNLABELLED)


@dataclass
class Replay:
    """The outcome of each request, in order."""

    name: str
    outcomes: list[str] = field(default_factory=list)
    doubtful: list[tuple[str, str]] = field(default_factory=list)
    """The text of the request and of the entry, for hits without a label: for a person to judge."""
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
        """Wrong hits among semantic hits. Exact hits are always right, so they are not counted."""
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
    """Sends one request after the other; looks up each entry's text once."""

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


async def replay(
    name: str, url: str, model: str, questions: Sequence[Question], meanings: Meanings
) -> Replay:
    """Send the questions one after the other."""
    key = os.environ.get(ADMIN_KEY) or os.environ.get(TOKEN_VARIABLE)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    found = Replay(name)
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as http:
        client = Client(http, model, meanings)
        for number, question in enumerate(questions, 1):
            found.outcomes.append(await client.outcome(question))
            if number % (4 * BLOCK) == 0:
                print(f"{name}: {number} of {len(questions)}", file=sys.stderr, flush=True)
        found.bound = await client.bound()
    found.doubtful = client.doubtful
    return found


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
