"""Measure how often a running cache answers, and how often wrongly, on a stream of requests with known
answers.

    python scripts/replay_cache.py [--pairs FILE.jsonl] [--requests 5000] [--max-error-rate 0.02]

Starts Promptly in front of a server that knows the answers, and sends repeats, paraphrases and similar
questions (`cache_lab/stream.py`), once without and once with the learned bound. With `--url`, sends them once
to a running endpoint, whose model may answer anything; an admin key is read from PROMPTLY_ADMIN_KEY or
PROMPTLY_ADMIN_TOKEN. A semantic hit is wrong if the entry's text and the request's have different
meanings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers import promptly
from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE
from cache_lab.oracle import MODEL, Oracle
from cache_lab.pairs import OWN_PAIRS, LabelledPair, read_pairs
from cache_lab.replay import Replay, markdown, plot, replay
from cache_lab.stream import Meanings, stream

LOOKUP_BUDGET_MS = 5000.0
"""Long, so that a busy machine causes no misses."""


def settings_for(oracle: Oracle, max_error_rate: float | None) -> dict[str, Any]:
    """The default decision. Look-ups do not race the engine, so that only the decision determines the
    hits."""
    cache = {"race": False, "lookup_budget_ms": LOOKUP_BUDGET_MS, "max_error_rate": max_error_rate}
    return {
        "auth": "loopback",
        "models": [{"id": MODEL, "upstreams": [{"name": "oracle", "url": f"{oracle.url}/v1"}]}],
        "embedder": {"id": "embedder", "source": EMBEDDER, "dtype": SHIPPED_DTYPE},
        "cache": cache,
    }


def replay_locally(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    """Replay the same requests without and with the bound, each on an empty store."""
    questions, meanings = list(stream(pairs, options.requests, options.seed)), Meanings(pairs)
    found = []
    for rate in (None, options.max_error_rate):
        name = "default decision" if rate is None else f"with max_error_rate {rate:g}"
        with (
            Oracle(pairs, options.seed, options.variation).running() as oracle,
            promptly(settings_for(oracle, rate)) as endpoint,
        ):
            found.append(asyncio.run(replay(name, endpoint.url, endpoint.model, questions, meanings)))
    return found


def replay_remotely(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    questions, meanings = list(stream(pairs, options.requests, options.seed)), Meanings(pairs)
    return [asyncio.run(replay(options.url, options.url, options.model, questions, meanings))]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=OWN_PAIRS)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--max-error-rate", type=float, default=0.02)
    parser.add_argument("--variation", type=float, default=0.2, help="share of answers in other words")
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
