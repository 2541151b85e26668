"""Send a stream of questions with known answers to an endpoint, and count right and wrong hits."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from cache_lab.rates import Interval, wilson
from cache_lab.stream import RIGHT, UNLABELLED, WRONG, Meanings, Question
from deployments.cli.endpoint import known_secret

BLOCK = 250
"""Requests between two points of the report over time."""

WAIT_S = 60.0

MISS, EXACT = "miss", "exact"
"""Outcomes of a request beside those of a semantic hit."""

HITS = (EXACT, RIGHT, WRONG, UNLABELLED)
FALSE = (WRONG, UNLABELLED)


@dataclass
class BoundRecord:
    """What the learned bound said of every near entry that the decision accepted: counts by the reason why
    the entry did not answer (``None``: it did) and by whether its answer was right."""

    said: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    expected_wrong: float = 0.0

    def note(self, refusal: str | None, outcome: str, expected: float) -> None:
        """``expected``: the mean share of wrong answers at this score that the bound knows of."""
        self.said[refusal, outcome] += 1
        self.expected_wrong += expected if refusal is None else 0.0

    def expected(self) -> float:
        """The share of wrong answers among those let through, as the bound saw it."""
        return self.expected_wrong / max(1, sum(self.counts(None).values()))

    def counts(self, refusal: str | None) -> dict[str, int]:
        return {outcome: self.said[refusal, outcome] for outcome in (RIGHT, WRONG, UNLABELLED)}

    @property
    def refusals(self) -> list[str]:
        return sorted({refusal for refusal, _ in self.said if refusal is not None})

    def right_share(self) -> float:
        """How often the bound was right, where the labels say: it let a right answer through, or held a
        wrong one back."""
        labelled = {key: count for key, count in self.said.items() if key[1] != UNLABELLED}
        right = sum(
            n for (refusal, outcome), n in labelled.items() if (refusal is None) == (outcome == RIGHT)
        )
        return right / max(1, sum(labelled.values()))

    def values(self) -> dict[str, Any]:
        return {
            "let through": self.counts(None),
            **{f"held back: {refusal}": self.counts(refusal) for refusal in self.refusals},
            "right": self.right_share(),
            "expected_wrong": self.expected(),
        }


@dataclass
class Replay:
    """The outcome of each request, in order."""

    name: str
    outcomes: list[str] = field(default_factory=list)
    doubtful: list[tuple[str, str]] = field(default_factory=list)
    """The text of the request and of the entry, for hits without a label: for a person to judge."""
    bound: Mapping[str, float] = field(default_factory=dict)
    record: BoundRecord = field(default_factory=BoundRecord)
    """Empty in a replay over HTTP, where refusals do not say which entry they concern."""

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
        stored = await self._text(entry)
        outcome = self._meanings.outcome(question.meaning, stored)
        if outcome == UNLABELLED:
            self.doubtful.append((question.text, stored))
        return outcome

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


async def replay(
    name: str, url: str, model: str, questions: Sequence[Question], meanings: Meanings
) -> Replay:
    """Send the questions one after the other."""
    key = known_secret()
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
    head = (
        "| | requests | hit rate | semantic hits | wrong by the labels (95 %) | no label: wrong if all are |"
    )
    lines = [f"# Semantic cache under a stream of requests made of {source}\n", head, "|---" * 6 + "|"]
    for each in replays:
        labelled = wilson(each.count(WRONG), each.semantic_hits)
        lines.append(
            f"| {each.name} | {len(each.outcomes)} | {100 * each.hit_rate():.1f} % | {each.semantic_hits} "
            f"| {each.count(WRONG)}: {_percent(labelled)} "
            f"| {each.count(UNLABELLED)}: {100 * each.false_share():.1f} % |"
        )
    if len(replays) > 1 and len(replays) % 2 == 0:
        lines += ["", *_with_over_without(replays[::2], replays[1::2])]
    bounded = [each for each in replays if each.record.refusals]
    return "\n".join([*lines, *(_bound_table(bounded) if bounded else ())]) + "\n"


def _with_over_without(without: Sequence[Replay], bounded: Sequence[Replay]) -> list[str]:
    """All seeds together."""
    plain, hits = (sum(each.semantic_hits for each in replays) for replays in (without, bounded))
    rates = [sum(each.hit_rate() for each in replays) for replays in (without, bounded)]
    wrong = wilson(sum(each.count(WRONG) for each in bounded), hits)
    return [
        f"With the bound over without, all together: {hits / max(1, plain):.2f} × the semantic hits, "
        f"{rates[1] / (rates[0] or 1):.3f} × the hit rate; {_percent(wrong)} of {hits} semantic hits "
        "wrong by the labels."
    ]


def _bound_table(bounded: Sequence[Replay]) -> list[str]:
    """What the bound said of each near entry that the decision accepted, beside what was right."""
    outcomes = (RIGHT, WRONG, UNLABELLED)
    lines = ["\n## How often the bound was right\n"]
    lines += [f"| | it said | {' | '.join(outcomes)} |", "|---" * (2 + len(outcomes)) + "|"]
    for each in bounded:
        for refusal in (None, *each.record.refusals):
            said = "may answer" if refusal is None else f"held back ({refusal})"
            counts = each.record.counts(refusal).values()
            lines.append(f"| {each.name} | {said} | {' | '.join(map(str, counts))} |")
    lines.append("")
    lines += [
        f"{each.name}: right in {100 * each.record.right_share():.0f} % of the labelled; it expected "
        f"{100 * each.record.expected():.1f} % wrong among what it let through."
        for each in bounded
    ]
    return lines


def _percent(interval: Interval) -> str:
    return f"{100 * interval.value:.1f} % ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


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
