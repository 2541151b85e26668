"""Run the benchmarks: `make bench`, or from `scripts/`: `python -m benchmarks --only layer --quick`.

Each benchmark writes a Markdown table, JSON and plots into `bench/`; all targets go into `bench/README.md`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    agents,
    autoscaling,
    cache,
    cache_shards,
    capture,
    cluster,
    cluster_kills,
    console,
    dialects,
    engine_figures,
    engine_loop,
    evaluation,
    experiments,
    failover,
    fuzz,
    gateways,
    idle,
    install,
    keys,
    kills,
    latency,
    layer,
    noisy,
    observability,
    overload,
    plans,
    quotas,
    relay_cost,
    responses,
    routing,
    speculation,
    start,
    stopwatch,
    teams,
    timeline,
    two_gateways,
    upgrades,
    vllm_failover,
    vllm_load,
)
from benchmarks.options import Options
from benchmarks.table import Figure, write_report

ROOT = Path(__file__).parents[2]

Benchmark = Callable[[Options], list[Figure]]

BENCHMARKS: dict[str, Benchmark] = {
    "layer": layer.run,
    "relay_cost": relay_cost.run,
    "latency": latency.run,
    "dialects": dialects.run,
    "timeline": timeline.run,
    "observability": observability.run,
    "capture": capture.run,
    "console": console.run,
    "vllm": vllm_load.run,
    "routing": routing.run,
    "agents": agents.run,
    "vllm-agents": agents.run_real,
    "overload": overload.run,
    "noisy": noisy.run,
    "keys": keys.run,
    "quotas": quotas.run,
    "teams": teams.run,
    "experiments": experiments.run,
    "failover": failover.run,
    "vllm-failover": vllm_failover.run,
    "kills": kills.run,
    "gateways": gateways.run,
    "two_gateways": two_gateways.run,
    "cluster": cluster.run,
    "cluster_kills": cluster_kills.run,
    "upgrades": upgrades.run,
    "responses": responses.run,
    "idle": idle.run,
    "start": start.run,
    "install": install.run,
    "cache": cache.run,
    "cache_shards": cache_shards.run,
    "stopwatch": stopwatch.run,
    "speculation": speculation.run,
    "engine": engine_figures.run,
    "engine_loop": engine_loop.run,
    "plans": plans.run,
    "autoscaling": autoscaling.run,
    "evaluation": evaluation.run,
    "fuzz": fuzz.run,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short repeat, to see that everything works")
    parser.add_argument("--litellm", action="store_true", help="install LiteLLM beside and measure it too")
    parser.add_argument("--noise", nargs="+", choices=noisy.KINDS, default=(), help="only these, in `noisy`")
    parser.add_argument("--parts", nargs="+", choices=teams.NAMES, default=(), help="only these, in `teams`")
    parser.add_argument("--out", type=Path, default=ROOT / "bench")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    repeats = 1 if chosen.quick else chosen.repeats
    options = Options(
        chosen.out, repeats, chosen.quick, chosen.litellm, tuple(chosen.noise), tuple(chosen.parts)
    )
    began = time.monotonic()
    figures: list[Figure] = []
    failed: list[str] = []
    report = ""
    for name in chosen.only:
        print(f"{name} ...", flush=True)
        try:
            figures += [figure for figure in BENCHMARKS[name](options) if figure.target is not None]
        except Exception:  # one failed benchmark must not lose the figures of the others
            traceback.print_exc()
            failed.append(name)
        about = {
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_version()}",
            "repeats": str(repeats),
            "took": f"{(time.monotonic() - began) / 60:.0f} min",
            "failed": ", ".join(failed) or "none",
        }
        report = write_report(options.out, "README", figures, about=about)
    print(report)
    if failed:
        sys.exit(f"no figures from: {', '.join(failed)}")


if __name__ == "__main__":
    main()
