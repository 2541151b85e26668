"""What each name that clients may use stands for."""

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
    """``name`` is the model's or the adapter's own one: engines, cache and metrics go by it. ``model`` is the
    model whose members answer, ``adapter`` where an adapter's weights are."""

    name: str
    model: str
    adapter: str | None = None

    def fingerprint(self, of_model: str) -> str:
        """An adapter's weights are part of its own; those of two adapters of one model differ."""
        if self.adapter is None:
            return of_model
        return hashlib.sha256(f"{of_model}\0{self.name}\0{self.adapter}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Every name of a model: ids, adapters and aliases. ``autos`` are names that stand for a choice;
    ``others`` are known, but no engine answers to them (the embedder)."""

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
        """The name that an engine knows. Only asked for names of models."""
        return self.served[name].name

    def model_of(self, name: str) -> str:
        """The model whose members answer to ``name``. Only asked for names of models."""
        return self.served[name].model

    def under_own_name(self, parsed: ParsedRequest) -> ParsedRequest:
        """The request as its model knows it. Raises: UnknownModel, EmbedderOnly."""
        if parsed.model in self.others:
            raise EmbedderOnly(parsed.model)
        if parsed.model not in self.served:
            raise self.unknown(parsed.model)
        return under(parsed, self.own(parsed.model))

    def unknown(self, name: str) -> UnknownModel:
        """The error that lists what there is."""
        return UnknownModel(name, tuple(self))

    def fingerprints(self, of_models: Mapping[str, str]) -> dict[str, str]:
        """Of every name of a model."""
        return {name: served.fingerprint(of_models[served.model]) for name, served in self.served.items()}


def under(parsed: ParsedRequest, name: str) -> ParsedRequest:
    """The same request to the model of another name; its fields and body stay the client's."""
    if name == parsed.model:
        return parsed
    return replace(parsed, generation=msgspec.structs.replace(parsed.generation, model=name))
