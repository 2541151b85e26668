"""The meaning of each model name that clients may use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from serve_app.errors import EmbedderOnly, UnknownModel
from serve_app.openai.requests import ParsedRequest
from serve_app.settings import Settings


@dataclass(frozen=True, slots=True)
class Served:
    """``name`` is the real name of the model or adapter, which engines, cache and metrics use. ``model`` is
    the model whose members answer; ``adapter`` is the location of an adapter's weights."""

    name: str
    model: str
    adapter: str | None = None

    def fingerprint(self, of_model: str) -> str:
        """The cache's fingerprint. An adapter's includes its weights, so two adapters of a model differ."""
        if self.adapter is None:
            return of_model
        return hashlib.sha256(f"{of_model}\0{self.name}\0{self.adapter}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelNames:
    """All model names: ids, adapters and aliases. ``autos`` are the names of auto models; ``others`` are
    known names that no engine serves (the embedder)."""

    served: Mapping[str, Served]
    autos: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        served: dict[str, Served] = {}
        for model in settings.models:
            served[model.id] = Served(model.id, model.id)
            served |= {name: Served(name, model.id, source) for name, source in model.adapters.items()}
            served |= dict.fromkeys(model.aliases, served[model.id])
        embedder = () if settings.embedder is None else (settings.embedder.id,)
        return cls(served, tuple(auto.id for auto in settings.auto_models), embedder)

    def __iter__(self) -> Iterator[str]:
        return iter((*self.served, *self.autos, *self.others))

    def own(self, name: str) -> str:
        """The name that engines know. ``name`` must be that of a model."""
        return self.served[name].name

    def model_of(self, name: str) -> str:
        """The model whose members serve ``name``, which must be the name of a model."""
        return self.served[name].model

    def under_own_name(self, parsed: ParsedRequest) -> ParsedRequest:
        """The request with the model's real name. Raises: UnknownModel, EmbedderOnly."""
        if parsed.model in self.others:
            raise EmbedderOnly(parsed.model)
        if parsed.model not in self.served:
            raise self.unknown(parsed.model)
        return under(parsed, self.own(parsed.model))

    def unknown(self, name: str) -> UnknownModel:
        """The error, which lists the known names."""
        return UnknownModel(name, tuple(self))

    def fingerprints(self, of_models: Mapping[str, str]) -> dict[str, str]:
        """The fingerprints of all names, from those of the models."""
        return {name: served.fingerprint(of_models[served.model]) for name, served in self.served.items()}


def under(parsed: ParsedRequest, name: str) -> ParsedRequest:
    """The same request to the model ``name``; fields and body are unchanged."""
    if name == parsed.model:
        return parsed
    return replace(parsed, generation=msgspec.structs.replace(parsed.generation, model=name))
