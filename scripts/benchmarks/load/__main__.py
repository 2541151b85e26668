"""Runs the load generator once, by hand."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields

import benchmarks.load
from benchmarks.load.client import LIMIT_S
from benchmarks.load.cpu_time import cpu_seconds
from benchmarks.load.figures import summarise
from benchmarks.load.requests import Request, Sample, chat_request, poisson
from benchmarks.load.runs import closed_loop, open_loop, run_fast


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=benchmarks.load.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", default="sim")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--itl-ms", type=float, default=20.0, help="the engine's own, for chunk delays")
    parser.add_argument(
        "--rate", type=float, help="requests per second, arriving at random; no fixed streams"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--key", help="bearer key")
    parser.add_argument("--pid", type=int, action="append", default=[], help="report this process's CPU time")
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> list[Sample]:
    headers = {"authorization": f"Bearer {options.key}"} if options.key else {}
    bodies = (
        chat_request(options.model, f"Request {index}.", options.tokens) for index in range(options.requests)
    )
    requests = [Request(request.path, request.body, headers) for request in bodies]
    if options.rate is None:
        return await closed_loop(options.url, requests, options.streams, limit_s=options.limit_s)
    return await open_loop(options.url, poisson(requests, options.rate), limit_s=options.limit_s)


def main() -> None:
    options = arguments()
    pids = [os.getpid(), *options.pid]
    before = cpu_seconds(pids)
    samples = run_fast(measure(options))
    after = cpu_seconds(pids)
    summary = summarise(samples, options.itl_ms / 1000)
    rows = [(item.name, getattr(summary, item.name)) for item in fields(summary)]
    rows += [(f"cpu_s of process {pid}", after[pid] - before[pid]) for pid in pids]
    for name, value in rows:
        print(f"{name:28} {value:12.2f}" if isinstance(value, float) else f"{name:28} {value:12}")
    for error in sorted({sample.error for sample in samples if sample.error}):
        print(f"{error:28} {sum(sample.error == error for sample in samples):12}")


if __name__ == "__main__":
    main()
