"""The command's arguments, checked before anything is loaded."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from quantization.schemes import QuantizeError, Scheme, quantized_source, scheme_named
from quantization.text import Samples, check_count, held_text, questions, read_samples
from serve_app.model_store import ModelStore


@dataclass(frozen=True, slots=True)
class Plan:
    """The checked arguments."""

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
    """Raises: QuantizeError: the folder exists."""
    out = _out(given, source, scheme, store)
    if out.exists():
        raise QuantizeError(f"{out} exists: give another --out, or remove it")
    return out


def quantised_folder(options: argparse.Namespace, store: ModelStore) -> Path | None:
    """The folder of the result, if it is there already.

    Raises:
        QuantizeError: there is no such scheme, or no model is named.
    """
    if options.model is None:
        raise QuantizeError("name a model: a folder, or the hub id of a prepared one")
    out = _out(options.out, options.model, scheme_named(options.scheme), store)
    return out if (out / "config.json").is_file() else None


def _out(given: Path | None, source: str, scheme: Scheme, store: ModelStore) -> Path:
    name = quantized_source(source, scheme)
    is_folder = Path(source).expanduser().is_dir()
    default = Path(name).expanduser() if is_folder else store.folder(name)
    return default if given is None else given.expanduser()


def _check_numbers(options: argparse.Namespace) -> None:
    check_count(options.samples)
    for name, least in (("sample_tokens", 16), ("answer_tokens", 16), ("rounds", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise QuantizeError(f"--{name.replace('_', '-')} {value}: expected at least {least}")


def _samples(options: argparse.Namespace, scheme: Scheme) -> Samples:
    if not scheme.calibrates:
        return Samples("none: this scheme needs none", ())
    if options.calibration is None:
        return questions(options.samples, options.seed)
    return read_samples(options.calibration, options.samples, options.seed)
