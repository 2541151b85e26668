"""A problem of a plan: a setting, the reason why it cannot work, and a value that would."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that an engine would raise only after it has started to load.

    ``setting`` is the path in the file (``models[0].engine.tensor_parallel_size``); ``works`` names a value
    or another setting that would work.
    """

    setting: str
    value: object
    reason: str
    works: str

    def __str__(self) -> str:
        return f"{self.setting} = {self.value!r}: {self.reason}; {self.works}"
