"""Runs sentence-transformers models in torch, without the library's ``encode`` method.

``encode`` sorts, batches, copies and looks for prompts and modalities on every call, and a caller has to
tokenise again to count tokens. Here the model's own modules (transformer, pooling, …) run on tokens made
once; the vectors are the same (to 1e-6 in float32).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deployments.embedder.base import Encoded, EncoderSpec, Floats, TextEncoder
from deployments.embedder.grouped import CPU_WASTE, GPU_WASTE, encode_groups
from deployments.embedder.tokens import Ids, TextTokenizer
from serve_app.model_store import ModelStore, default_cache_dir

logger = logging.getLogger(__name__)

PROBES = (
    "Which of two ways to a vector is the shorter one?",
    "warm",
    "A third length, so that texts are padded.",
)
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Largest difference of a coordinate, by dtype, at which two encoders count as equal."""


def load_library_model(spec: EncoderSpec, **model_options: Any) -> Any:
    """The ``SentenceTransformer`` of ``spec``, from the cache folder if it has been prepared there."""
    import torch
    from sentence_transformers import SentenceTransformer

    if spec.device == "cpu":
        torch.set_num_threads(spec.threads)
    source = ModelStore(default_cache_dir()).resolve(spec.source)
    options = {"dtype": getattr(torch, spec.dtype)} | model_options
    return SentenceTransformer(source, device=spec.device, model_kwargs=options).eval()


def open_torch(spec: EncoderSpec) -> TextEncoder:
    """Open the direct encoder if its vectors equal the library's, else one that uses the library's
    ``encode``."""
    model = load_library_model(spec)
    library = LibraryEncoder(model, spec)
    if getattr(model.tokenizer, "is_fast", False):
        direct = DirectEncoder(model, spec)
        if agree(direct, library, TOLERANCES[spec.dtype]):
            return direct
    logger.warning("%s has steps of its own before its model: texts go through the library", spec.source)
    return library


def agree(one: TextEncoder, other: TextEncoder, tolerance: float) -> bool:
    """Whether both encoders give the same vectors for texts of different lengths, alone and in a batch."""
    for texts in (PROBES[:1], PROBES):
        difference = one.encode(texts).vectors - other.encode(texts).vectors
        if not float(np.abs(difference).max()) <= tolerance:  # NaN counts as a difference, too
            return False
    return True


class _LibraryModel:
    """The part that both encoders share."""

    def __init__(self, model: Any, spec: EncoderSpec) -> None:
        self._model = model
        self._spec = spec

    @property
    def name(self) -> str:
        return f"{self._spec.source}:{self._spec.dtype}"

    @property
    def dimension(self) -> int:
        return int(self._model.get_embedding_dimension())

    @property
    def max_tokens(self) -> int:
        return int(self._model.max_seq_length)


class DirectEncoder(_LibraryModel):
    """Calls the model's modules on tokens made here."""

    def __init__(self, model: Any, spec: EncoderSpec) -> None:
        super().__init__(model, spec)
        self._tokenizer = TextTokenizer.of_library(model.tokenizer, self.max_tokens)
        self._inputs = library_inputs(model)
        self._waste = CPU_WASTE if spec.device == "cpu" else GPU_WASTE

    def encode(self, texts: Sequence[str]) -> Encoded:
        return encode_groups(texts, self._tokenizer, self._forward, self.dimension, self._waste)

    def _forward(self, inputs: Mapping[str, Ids]) -> Floats:
        import torch

        with torch.inference_mode():
            tensors = {name: torch.from_numpy(inputs[name]).to(self._spec.device) for name in self._inputs}
            vectors = self._model(tensors)["sentence_embedding"].float()
            found: Floats = torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()
        return found


class LibraryEncoder(_LibraryModel):
    """Calls the library's own ``encode``, which follows everything that the model's folder asks for."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        if not texts:
            return Encoded(np.empty((0, self.dimension), np.float32), (), ())
        vectors = self._model.encode(
            list(texts),
            batch_size=len(texts),
            normalize_embeddings=True,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        tokenizer = self._model.tokenizer
        ids = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        unknown = tuple(own[: self.max_tokens].count(tokenizer.unk_token_id) for own in ids)
        return Encoded(vectors.float().cpu().numpy(), tuple(len(own) for own in ids), unknown)


def library_inputs(model: Any) -> tuple[str, ...]:
    """The names of the inputs that the model's transformer reads, in a fixed order."""
    known = ("input_ids", "attention_mask", "token_type_ids")
    return tuple(name for name in known if name in model.tokenizer.model_input_names)
