"""Measure how often the cache answers, and how often wrongly, on a stream of requests with known answers.

    python scripts/replay_cache.py [--pairs FILE] [--requests 5000] [--max-error-rate 0.02] [--seeds 3]
    python scripts/replay_cache.py --serve       # through a running Promptly, started for it
    python scripts/replay_cache.py --url http://127.0.0.1:8000

Sends repeats, paraphrases and similar questions (`cache_lab/stream.py`), without and with the learned
bound, to the decision and the bound of service in one process: the same figures in each run. It says how
often the bound was right. `--serve` sends them through HTTP, gateway, embedder and store, in front of a
server that knows the answers; `--url` to a running endpoint, whose model may answer anything (an admin key is
read from PROMPTLY_ADMIN_KEY or PROMPTLY_ADMIN_TOKEN). A semantic hit is wrong if the entry's text and the
request's have different meanings.
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
from cache_lab.cosines import EMBEDDER, SHIPPED_DTYPE, Vectors, embedder_settings
from cache_lab.in_process import Remembered, replay_in_process
from cache_lab.oracle import MODEL, Oracle
from cache_lab.pairs import OWN_PAIRS, LabelledPair, read_pairs
from cache_lab.replay import Replay, markdown, plot, replay
from cache_lab.stream import Meanings, stream

from deployments.cache.decision import open_decision
from serve_app.settings import CacheSettings

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


def replay_here(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    """Replay in this process, once for each seed, without and with the bound."""
    vectors, meanings = Vectors(embedder_settings()), Meanings(pairs)
    vectors.read(text for pair in pairs for text in (pair.query, pair.candidate))
    decision = Remembered(open_decision(CacheSettings(), EMBEDDER))
    found = []
    for seed in range(options.seed, options.seed + options.seeds):
        questions = list(stream(pairs, options.requests, seed))
        for rate in (None, options.max_error_rate):
            name = f"seed {seed}, {named(rate)}"
            found.append(
                replay_in_process(
                    name,
                    decision,
                    vectors,
                    questions,
                    meanings,
                    max_error_rate=rate,
                    variation=options.variation,
                    seed=seed,
                )
            )
    return found


def named(max_error_rate: float | None) -> str:
    return "default decision" if max_error_rate is None else f"max_error_rate {max_error_rate:g}"


def replay_locally(options: argparse.Namespace, pairs: Sequence[LabelledPair]) -> list[Replay]:
    """Replay the same requests without and with the bound, each on an empty store."""
    questions, meanings = list(stream(pairs, options.requests, options.seed)), Meanings(pairs)
    found = []
    for rate in (None, options.max_error_rate):
        name = named(rate)
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
    parser.add_argument("--pairs", type=Path, default=OWN_PAIRS, help="as for eval_cache.py")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--max-error-rate", type=float, default=0.02)
    parser.add_argument("--variation", type=float, default=0.2, help="share of answers in other words")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=3, help="how many; one with --serve and --url")
    parser.add_argument("--serve", action="store_true", help="through a Promptly that is started for it")
    parser.add_argument("--url", help="an endpoint that runs already, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default=MODEL, help="the model to ask for at --url")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    options = parser.parse_args()
    if not 0 < options.max_error_rate < 0.5:
        parser.error("--max-error-rate: a share above 0 and below 0.5")
    if not 0 <= options.variation <= 1:
        parser.error("--variation: a share from 0 to 1")
    if options.requests < 1 or options.seeds < 1:
        parser.error("--requests, --seeds: 1 or more")
    return options


def main() -> None:
    options = arguments()
    try:
        pairs = read_pairs(options.pairs)
    except (OSError, ValueError) as error:
        sys.exit(f"replay_cache: {error}")
    if not pairs:
        sys.exit(f"replay_cache: {options.pairs} holds no pairs")
    run = replay_remotely if options.url else replay_locally if options.serve else replay_here
    replays = run(options, pairs)
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
