"""Quantise a model, and measure what that costs and gives.

    python scripts/quantize.py --install
    python scripts/quantize.py HuggingFaceTB/SmolLM2-135M-Instruct --scheme int8
    python scripts/quantize.py /models/mine --scheme awq --calibration chats.jsonl --samples 512

Schemes: fp8, int8 (W8A8) and awq (W4A16), made by llm-compressor in a virtual environment of its own. Prints
the size of the weights, the perplexity of a held text, how often the greedy token stays the same, and the
time per output token in vLLM on this machine, before and after; writes the same as quantization.json and
QUANTIZATION.md beside the weights. Serve the result as any model:
`source: HuggingFaceTB/SmolLM2-135M-Instruct-int8`.

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
from dataclasses import dataclass
from pathlib import Path

from quantize_environment import environment, install, interpreter
from quantize_figures import Card, Pair, Speed, as_json, as_markdown
from quantize_job import Job, Outcome, read_outcome, write
from quantize_schemes import SCHEMES, QuantizeError, Scheme, quantized_source, scheme_named
from quantize_speed import measure_speed
from quantize_text import HELD_TEXT, Samples, check_count, held_text, questions, read_samples

from serve_app.model_store import ModelStore, default_cache_dir

WORKER = Path(__file__).parent / "quantize_worker.py"
KNOWN = ", ".join(SCHEMES)
CARD_JSON, CARD_TEXT = "quantization.json", "QUANTIZATION.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was asked for, checked."""

    name: str
    model: Path
    out: Path
    scheme: Scheme
    samples: Samples
    held_name: str
    held: str
    sample_tokens: int
    answer_tokens: int
    seed: int


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
    parser.add_argument("--rounds", type=int, default=2, help="of the time per token; 0: do not measure it")
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
        card = quantise(checked(options, ModelStore(default_cache_dir())), options.rounds)
    except QuantizeError as error:
        print(error, file=sys.stderr)
        return 1
    print(as_markdown(card))
    return 0


# ---- arguments -------------------------------------------------------------------------------------------


def checked(options: argparse.Namespace, store: ModelStore) -> Plan:
    """Raises: QuantizeError: an argument is wrong."""
    if options.model is None:
        raise QuantizeError("name a model: a folder, or the hub id of a prepared one")
    scheme = scheme_named(options.scheme)
    model = model_folder(options.model, store)
    out = out_folder(options.out, options.model, scheme, store)
    _check_numbers(options)
    return Plan(
        name=options.model,
        model=model,
        out=out,
        scheme=scheme,
        samples=_samples(options, scheme),
        held_name=options.held.name,
        held=held_text(options.held),
        sample_tokens=options.sample_tokens,
        answer_tokens=options.answer_tokens,
        seed=options.seed,
    )


def model_folder(source: str, store: ModelStore) -> Path:
    """Raises: QuantizeError: no folder, no weights, or weights that are quantised already."""
    folder = Path(store.resolve(source)).expanduser()
    if not folder.is_dir():
        raise QuantizeError(
            f"{source}: no such folder, and {store.folder(source)} is not prepared; give a folder with "
            "config.json and safetensors files"
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise QuantizeError(
            f"{folder}: config.json is missing or holds no JSON; copy the model again"
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise QuantizeError(f"{folder}: there are no safetensors files; copy the model again")
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method", "unknown")
        raise QuantizeError(f"{folder} is quantised already ({method}); give the model in 16 bits")
    return folder


def out_folder(given: Path | None, source: str, scheme: Scheme, store: ModelStore) -> Path:
    """Raises: QuantizeError: it exists."""
    name = quantized_source(source, scheme)
    is_folder = Path(source).expanduser().is_dir()
    default = Path(name).expanduser() if is_folder else store.folder(name)
    out = default if given is None else given.expanduser()
    if out.exists():
        raise QuantizeError(f"{out} exists: give another --out, or remove it")
    return out


def _check_numbers(options: argparse.Namespace) -> None:
    check_count(options.samples)
    for name, least in (("sample_tokens", 16), ("answer_tokens", 16), ("rounds", 0)):
        value = getattr(options, name)
        if value < least:
            raise QuantizeError(f"--{name.replace('_', '-')} {value}: expected at least {least}")


def _samples(options: argparse.Namespace, scheme: Scheme) -> Samples:
    if not scheme.calibrates:
        return Samples("none: this scheme needs none", ())
    if options.calibration is None:
        return questions(options.samples, options.seed)
    return read_samples(options.calibration, options.samples, options.seed)


# ---- work ------------------------------------------------------------------------------------------------


def quantise(plan: Plan, rounds: int) -> Card:
    """The folder appears under its name only when it is whole, without the card that follows.

    Raises:
        QuantizeError: llm-compressor is not installed, or could not do it.
    """
    python = interpreter()
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # Same file system as the final name: the rename below is atomic.
    with tempfile.TemporaryDirectory(dir=plan.out.parent, prefix=".partial-") as partial:
        made = Path(partial) / "model"
        outcome = _run_worker(python, plan, made, Path(partial))
        made.rename(plan.out)
    print(f"  {plan.out}: made in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    speed, no_speed = measure_speed(plan.model, plan.out, rounds)
    card = card_of(plan, outcome, speed, no_speed)
    text = json.dumps(as_json(card), indent=2, ensure_ascii=False)
    (plan.out / CARD_JSON).write_text(text + "\n", encoding="utf-8")
    (plan.out / CARD_TEXT).write_text(as_markdown(card), encoding="utf-8")
    return card


def _run_worker(python: Path, plan: Plan, made: Path, scratch: Path) -> Outcome:
    job = Job(
        model=str(plan.model),
        out=str(made),
        scheme=plan.scheme.name,
        samples=plan.samples.items,
        held=plan.held,
        sample_tokens=plan.sample_tokens,
        answer_tokens=plan.answer_tokens,
        seed=plan.seed,
    )
    write(scratch / "job.json", job)
    command = [str(python), str(WORKER), str(scratch / "job.json"), str(scratch / "outcome.json")]
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, check=False)
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
    """Of the safetensors files."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


if __name__ == "__main__":
    sys.exit(main())
