"""What usage costs: by tokens, and by the time of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

from serve_app.settings import Settings

MILLION = 1_000_000
HOUR_S = 3600.0


class Price(msgspec.Struct, frozen=True):
    """Prices of one model. ``input`` and ``output``: per million tokens; ``device_hour``: of one device. All
    are 0 where the settings name none. ``devices``: accelerators of one replica, 0 of a CPU engine and of
    upstreams."""

    input: float = 0.0
    output: float = 0.0
    device_hour: float = 0.0
    devices: int = 0

    def of_tokens(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.input + tokens_out * self.output) / MILLION

    def of_gpu(self, seconds: float) -> float:
        return seconds * self.device_hour / HOUR_S


FREE = Price()


class Prices:
    """Prices by the names of models and adapters, and by their aliases."""

    def __init__(self, by_name: Mapping[str, Price]) -> None:
        self._by_name = dict(by_name)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        found: dict[str, Price] = {}
        for model in settings.models:
            tokens, engine = model.cost_per_million_tokens, model.engine
            on_gpu = engine is not None and engine.accelerator == "gpu"
            price = Price(
                0.0 if tokens is None else tokens.input,
                0.0 if tokens is None else tokens.output,
                model.cost_per_device_hour or 0.0,
                engine.num_devices if engine is not None and on_gpu else 0,
            )
            found |= dict.fromkeys((model.id, *model.aliases, *model.adapters), price)
        return cls(found)

    def price(self, model: str | None) -> Price:
        return FREE if model is None else self._by_name.get(model, FREE)


def gpu_seconds(engine_s: float, devices: int, running: int) -> float:
    """An estimate: the time that the engine worked on a request × the devices of its replica / the requests
    that ran there. Together the requests of a busy replica have used its devices' time once; a request that
    was alone has used all of it. ``running`` is a report of the moment when the request ended, so where the
    load changes within a request its own part is only near."""
    return engine_s * devices / max(1, running)
