"""Check a config file and size its engines: memory, limits, speed, replicas and cost. It loads and starts
nothing.

    promptly plan config.yaml
    promptly plan config.yaml --device H100 --gpus 8 --price 2.50
    promptly plan config.yaml --set engine.tensor_parallel_size=2 --set engine.quantization=fp8
    promptly plan config.yaml --device L4 --rate 4 --prompt-tokens 1000 --output-tokens 200
    promptly plan config.yaml --device H100 --rules config/observability/plan.yml
    promptly plan config.yaml --device H100 --trace requests.csv --ttft-ms 500 --tpot-ms 50

Models are read from their folders, or from the hub: only config.json and the index of the weights. If the hub
cannot be reached, the shapes of the models in the shipped configs come from a record. Exit status 1:
something in the file would fail while loading; each line names it, and a value that would work.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from deployments.cli.overrides import overridden
from deployments.cli.trace_file import TraceError, read_trace
from deployments.engine.model_files import ModelLibrary
from deployments.engine.parsers import model_parsers
from deployments.engine.sizing import Hardware, managed_models, plan_applications
from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.planning import (
    USUAL,
    Demand,
    Efficiency,
    Load,
    Target,
    check_cluster,
    device_names,
    recording_rules,
    report,
)
from serve_app.settings import Settings, load_file

RULES_HEAD = "# What `promptly plan` foretells of one replica, for Prometheus. Made by its option --rules.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly plan``."""
    parser.add_argument("config", type=Path, help="Serve config file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="in the first model")
    parser.add_argument(
        "--device", help=f"default: the engine's accelerator_type; one of cpu, {device_names()}"
    )
    parser.add_argument("--memory-gib", type=positive, help="memory of one device, instead of the table's")
    parser.add_argument("--gpus", type=int, help="GPUs of the cluster, for all models together")
    parser.add_argument("--rate", type=positive, help="requests per second, for TTFT and time per token")
    parser.add_argument("--prompt-tokens", type=positive, default=1000.0, help="mean, with --rate")
    parser.add_argument("--output-tokens", type=positive, default=200.0, help="mean, with --rate")
    parser.add_argument("--trace", type=Path, help="CSV with t_s, input_tokens, output_tokens")
    parser.add_argument("--ttft-ms", type=positive, default=1000.0, help="target")
    parser.add_argument(
        "--tpot-ms", type=positive, default=100.0, help="target for the time per output token"
    )
    parser.add_argument(
        "--share", type=share, default=0.95, help="of a trace's requests that meet the target"
    )
    parser.add_argument(
        "--price", type=positive, help="of one device per hour, for the cost of a million tokens"
    )
    usual = USUAL
    parser.add_argument(
        "--bandwidth-share", type=share, default=usual.bandwidth, help="of the peak that decoding reaches"
    )
    parser.add_argument(
        "--compute-share", type=share, default=usual.compute, help="of the peak that prefill reaches"
    )
    parser.add_argument(
        "--rules", type=Path, help="write the figures there, as rules by which Prometheus records them"
    )
    parser.add_argument("--offline", action="store_true", help="never ask the hub")
    parser.set_defaults(run=run)


def positive(text: str) -> float:
    """Raises: ValueError, ArgumentTypeError: it is not a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def share(text: str) -> float:
    """Raises: ValueError, ArgumentTypeError: it is not a number above 0 and at most 1."""
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at most 1")
    return value


def run(options: argparse.Namespace) -> int:
    """Print the plan of every model in the file; 1 if something would not work."""
    store = ModelStore(default_cache_dir())
    library = ModelLibrary(store, offline=options.offline or _hub_is_off(), recorded=True)
    efficiency = Efficiency(options.bandwidth_share, options.compute_share)
    hardware = Hardware(options.device, options.memory_gib, efficiency)
    try:
        first, *others = load_file(options.config)
        applications = [overridden(first, options.set), *others]
        demand = _demand(options)
        plans, problems = plan_applications(applications, library, hardware)
    except (SettingsError, TraceError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.gpus is not None:
        problems += check_cluster(plans, options.gpus)
    parsers = _parsers(applications, store, fetch=not options.offline and not _hub_is_off())
    for plan in plans:
        lines = (f"  {line}" for line in parsers[plan.where, plan.id])
        print("\n".join([*report(plan, demand), *lines]), end="\n\n")
    if options.rules is not None:
        try:
            options.rules.write_text(RULES_HEAD + yaml.safe_dump(recording_rules(plans), sort_keys=False))
        except OSError as error:
            print(f"--rules {options.rules}: {said_of(error)}", file=sys.stderr)
            return 1
    if not plans and not problems:
        print("no model has managed replicas: there is nothing to plan")
    for problem in problems:
        print(f"{options.config}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _parsers(
    applications: Sequence[Settings], store: ModelStore, *, fetch: bool
) -> dict[tuple[str, str], list[str]]:
    """Which parsers each engine gets for tool calls and reasoning, and why, by the plan's place and id."""
    return {
        (f"models[{index}]", model.id): model_parsers(model, store, fetch=fetch).lines()
        for settings in applications
        for index, model in managed_models(settings)
    }


def _demand(options: argparse.Namespace) -> Demand:
    load = None
    if options.rate is not None:
        load = Load(options.rate, options.prompt_tokens, options.output_tokens)
    return Demand(
        load=load,
        trace=None if options.trace is None else read_trace(options.trace),
        target=Target(options.ttft_ms / 1e3, options.tpot_ms / 1e3, options.share),
        price=options.price,
    )


def _hub_is_off() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
