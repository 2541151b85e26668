"""Exports a sentence-transformers folder to an ONNX graph, with torch's own exporter.

``optimum`` does the same, but its ONNX package requires transformers 4.x. The graph covers everything from
token ids to the unit vector, including pooling. It is made once per model, dtype and versions of the
libraries involved, under ``<cache>/onnx``. The folder gets its final name only when it is complete and its
vectors agree with the library's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import tempfile
import warnings
from pathlib import Path
from typing import Any

import msgspec

from deployments.embedder.base import EncoderSpec
from deployments.embedder.onnx_encoder import CARD_FILE, GRAPH_FILE, TOKENIZER_FILE, GraphCard, OnnxEncoder
from deployments.embedder.tokens import TokenizerTraits
from deployments.embedder.torch_encoder import LibraryEncoder, agree, library_inputs, load_library_model
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore, default_cache_dir

FORMAT = 1
"""Increase it when graph folders of older versions can no longer be used."""
OPSET = 17
TOLERANCES = {"float32": 1e-4, "int8": 0.1}
"""By dtype: how far a graph's vectors may be from the library's."""
MAKERS = ("torch", "transformers", "sentence-transformers")


def open_onnx(spec: EncoderSpec) -> OnnxEncoder:
    """Open the graph of ``spec``. The first call makes it in the cache folder (about ten seconds).

    Raises:
        SettingsError: onnxruntime (or, to make the graph, onnx) is not installed, or the device or dtype
            is not one that this backend has.
    """
    if spec.device != "cpu" or spec.dtype not in TOLERANCES:
        raise SettingsError(
            f"embedder: backend `onnx` runs on device cpu with dtype {' or '.join(TOLERANCES)}, "
            f"not on {spec.device} with {spec.dtype}"
        )
    return OnnxEncoder(prepared_graph(spec), spec)


def prepared_graph(spec: EncoderSpec) -> Path:
    """The graph folder of ``spec``, made now if it does not exist.

    Raises:
        SettingsError: onnx is not installed, or the graph's vectors differ from the model's.
    """
    source = _local_folder(spec.source)
    final = default_cache_dir() / "onnx" / f"{source.name}-{spec.dtype}-{_digest(source)}"
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".partial-") as partial:
        made = Path(partial) / "graph"
        made.mkdir()
        _make(spec, made)
        try:
            made.rename(final)
        except OSError:  # another replica was first
            if not final.is_dir():
                raise
    return final


def _local_folder(source: str) -> Path:
    resolved = Path(ModelStore(default_cache_dir()).resolve(source))
    if resolved.is_dir():
        return resolved
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source))


def _digest(source: Path) -> str:
    """Changes with the model's files (names, sizes, times) and with what makes the graph."""
    files = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith("."))
    marks = [(str(f.relative_to(source)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    versions = [importlib.metadata.version(name) for name in MAKERS]
    return hashlib.sha256(repr((FORMAT, OPSET, versions, marks)).encode()).hexdigest()[:12]


def _make(spec: EncoderSpec, folder: Path) -> None:
    _require_onnx()
    float32 = EncoderSpec(spec.source, "cpu", "float32", spec.threads)
    model = load_library_model(float32, attn_implementation="eager")
    model.tokenizer.backend_tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / CARD_FILE).write_bytes(msgspec.json.encode(_card(model)))
    _export(model, folder / GRAPH_FILE)
    if spec.dtype == "int8":
        quantize(folder / GRAPH_FILE)
    if not agree(OnnxEncoder(folder, spec), LibraryEncoder(model, float32), TOLERANCES[spec.dtype]):
        raise SettingsError(f"{spec.source}: its ONNX graph gives other vectors; use `backend: torch`")


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise SettingsError("embedder.backend = 'onnx' needs the package onnx to make its graph") from error


def _card(model: Any) -> GraphCard:
    return GraphCard(
        dimension=int(model.get_embedding_dimension()),
        max_tokens=int(model.max_seq_length),
        inputs=library_inputs(model),
        tokenizer=TokenizerTraits.of_library(model.tokenizer),
    )


def _export(model: Any, path: Path) -> None:
    import torch

    names = library_inputs(model)

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            vectors = self.model(dict(zip(names, inputs, strict=True)))["sentence_embedding"]
            return torch.nn.functional.normalize(vectors, dim=1)

    # Two texts, one of them padded: tracing must not record the shortcut for a full mask.
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    samples = {"input_ids": mask * 5, "attention_mask": mask, "token_type_ids": mask * 0}
    with warnings.catch_warnings(), torch.inference_mode():
        # The exporter warns of every Python value that it treats as a constant, and that a slower exporter
        # exists. The vectors are compared afterwards, at other lengths than these.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Graph().eval(),
            tuple(samples[name] for name in names),
            str(path),
            input_names=list(names),
            output_names=["vectors"],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names} | {"vectors": {0: "texts"}},
            opset_version=OPSET,
            dynamo=False,
        )


def quantize(path: Path) -> None:
    """Quantize the weights to int8 in place: one scale per channel, and only seven bits, so that the 16-bit
    sums of CPUs without VNNI cannot overflow."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    full = path.with_suffix(".float32")
    path.rename(full)
    quantize_dynamic(full, path, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    full.unlink()
