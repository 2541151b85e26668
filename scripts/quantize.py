"""Quantise a model, and measure size, quality and speed before and after.

    python scripts/quantize.py --install
    python scripts/quantize.py HuggingFaceTB/SmolLM2-135M-Instruct --scheme int8
    python scripts/quantize.py /models/mine --scheme awq --calibration chats.jsonl --samples 512
    python scripts/quantize.py /models/mine --scheme int8 --suite config/golden/small-model.yaml

Schemes: fp8, int8 (W8A8) and awq (W4A16), made by llm-compressor in its own virtual environment. Prints the
size of the weights, the perplexity of a held-out text, the share of equal greedy tokens, and the time per
output token in vLLM on this machine, before and after; the same goes into quantization.json and
QUANTIZATION.md beside the weights. Serve the result as any model: `source:
HuggingFaceTB/SmolLM2-135M-Instruct-int8`.

With --suite both models then answer a suite of cases in turn, and the verdicts are those of `promptly eval`
(worse, not worse, undecided), of quality and of latency; so is the exit status. The report goes beside the
weights. If the quantised folder is there already, it is only judged.

Without --calibration the model writes the samples itself. A file is JSON lines with "text" or "messages", or
plain text with an empty line between samples.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.endpoint import PeerError
from benchmarks.quantized_speed import last_reason, measure_speed
from benchmarks.quantized_verdict import judged
from quantization.environment import SCRIPTS, environment, install, interpreter
from quantization.figures import Card, Pair, Speed, as_json, as_markdown
from quantization.job import Job, Outcome, read_outcome, write
from quantization.plan import Plan, checked, model_folder, quantised_folder
from quantization.schemes import SCHEMES, QuantizeError
from quantization.text import HELD_TEXT

from deployments.evaluation.runner import RunError
from serve_app.errors import SuiteError
from serve_app.evaluation.suite import Suite, load_suite
from serve_app.evaluation.writers.tables import terminal
from serve_app.model_store import ModelStore, default_cache_dir

WORKER = "quantization.worker"
ROUNDS = 2
CARD_JSON, CARD_TEXT = "quantization.json", "QUANTIZATION.md"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder, or the hub id of a prepared model")
    parser.add_argument(
        "--scheme", default="int8", help=f"one of: {', '.join(SCHEMES)} (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, help="new folder; default: the model's, with -SCHEME at its end")
    parser.add_argument("--calibration", type=Path, help="samples, .jsonl or .txt")
    parser.add_argument("--samples", type=int, default=256, help="128 to 512 (default: %(default)s)")
    parser.add_argument("--sample-tokens", type=int, default=512, help="most of one sample")
    parser.add_argument("--answer-tokens", type=int, default=128, help="of each sample that the model writes")
    parser.add_argument("--held", type=Path, default=HELD_TEXT, help="text to measure perplexity on")
    parser.add_argument(
        "--rounds", type=int, help=f"of the time per token (default: {ROUNDS}; with --suite, which times, 0)"
    )
    parser.add_argument("--suite", type=Path, help="of cases; judges the result as `promptly eval` does")
    parser.add_argument("--repeats", type=int, default=1, help="of each case (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--install", action="store_true", help="install llm-compressor (first, once)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        if options.install:
            print(f"llm-compressor: {install()}")
            if options.model is None:
                return 0
        store = ModelStore(default_cache_dir())
        suite = None if options.suite is None else load_suite(options.suite)
        if options.rounds is None:
            options.rounds = ROUNDS if suite is None else 0
        made = quantised_folder(options, store)
        if suite is None or made is None:
            plan = checked(options, store)
            print(as_markdown(quantise(plan, options.rounds)))
            made = plan.out
        return 0 if suite is None else verdict(options, store, made, suite)
    except (QuantizeError, SuiteError) as error:
        print(error, file=sys.stderr)
        return 1


def verdict(options: argparse.Namespace, store: ModelStore, made: Path, suite: Suite) -> int:
    """Print it; returns the exit status of `promptly eval`.

    Raises:
        QuantizeError: vLLM cannot serve the models here, or they answer nothing.
    """
    before = model_folder(options.model, store)
    try:
        report = judged(before, made, suite, options.repeats, options.seed)
    except PeerError as error:
        raise QuantizeError(f"vLLM could not serve the models here: {last_reason(str(error))}") from None
    except RunError as error:
        raise QuantizeError(str(error)) from None
    print(terminal(report))
    return report.status


def quantise(plan: Plan, rounds: int) -> Card:
    """Quantise and measure. The folder gets its name only when it is complete; the card is added afterwards.

    Raises:
        QuantizeError: llm-compressor is not installed, or could not do it.
    """
    python = interpreter()
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # Same file system as the final name: the rename below is atomic.
    with tempfile.TemporaryDirectory(dir=plan.out.parent, prefix=".partial-") as partial:
        scratch = Path(partial).absolute()
        made = scratch / "model"
        outcome = _run_worker(python, plan, made, scratch)
        made.rename(plan.out)
    print(f"  {plan.out}: made in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    speed, no_speed = measure_speed(plan.model, plan.out, rounds)
    card = card_of(plan, outcome, speed, no_speed)
    text = json.dumps(as_json(card), indent=2, ensure_ascii=False)
    (plan.out / CARD_JSON).write_text(text + "\n", encoding="utf-8")
    (plan.out / CARD_TEXT).write_text(as_markdown(card), encoding="utf-8")
    return card


def _run_worker(python: Path, plan: Plan, made: Path, scratch: Path) -> Outcome:
    """The worker runs in ``scripts/``, so every path that it gets is absolute."""
    job = Job(
        model=str(plan.model.absolute()),
        out=str(made),
        scheme=plan.scheme.name,
        samples=plan.samples.items,
        held=plan.held,
        sample_tokens=plan.sample_tokens,
        answer_tokens=plan.answer_tokens,
        seed=plan.seed,
    )
    write(scratch / "job.json", job)
    command = [str(python), "-m", WORKER, str(scratch / "job.json"), str(scratch / "outcome.json")]
    done = subprocess.run(command, cwd=SCRIPTS, env=environment(), stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise QuantizeError(f"llm-compressor could not quantise {plan.model}; its messages are above")
    return read_outcome(scratch / "outcome.json")


def card_of(plan: Plan, outcome: Outcome, speed: Speed | None, no_speed: str) -> Card:
    count = len(plan.samples.items)
    calibration = plan.samples.origin
    if count:
        calibration = f"{count} samples, {outcome.tokens:,} tokens, {calibration}"
    return Card(
        source=plan.name,
        scheme=plan.scheme.title,
        method=plan.scheme.method,
        calibration=calibration,
        samples=count,
        sample_tokens=outcome.tokens,
        held=plan.held_name,
        held_tokens=outcome.held_tokens,
        size_bytes=Pair(weight_bytes(plan.model), weight_bytes(plan.out)),
        perplexity=Pair(outcome.perplexity_before, outcome.perplexity_after),
        same_next_token=outcome.same_next_token,
        speed=speed,
        no_speed=no_speed,
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
        versions=outcome.versions,
    )


def weight_bytes(folder: Path) -> int:
    """Bytes of the safetensors files."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


if __name__ == "__main__":
    sys.exit(main())
