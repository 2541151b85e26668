"""`python`: a function of the team's own."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from pydantic import Field

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict


class PythonFunction(OptionScorer):
    """``function``: ``package.module:name`` or ``file.py:name`` beside the suite; it is called with case and
    answer.

    It returns a ``Score``, whether the answer passes, or a number from 0 to 1, which passes from
    ``threshold``. One that is not async runs in a thread; a call that lasts longer than ``timeout_s`` is
    given up, and its thread ends with the process.
    """

    compares: ClassVar[bool] = False

    function: str
    threshold: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    timeout_s: float = Field(30.0, gt=0, le=3600, allow_inf_nan=False)

    def check(self, *, has_expected: bool) -> None:
        load_function(self.function)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        function = load_function(self.function)
        if inspect.iscoroutinefunction(function):
            call = _awaited(function, case, answer)
        else:
            call = asyncio.to_thread(_called, function, case, answer)
        try:
            return self._read(await asyncio.wait_for(call, self.timeout_s))
        except TimeoutError:
            raise ScoreError(f"{self.function} took longer than {self.timeout_s:g} s") from None
        except _Raised as error:
            raise ScoreError(f"{self.function} raised {error}") from None

    def _read(self, value: Any) -> Score:
        if isinstance(value, Score):
            return value
        if isinstance(value, bool):
            return verdict(value, f"{self.function} says so")
        if isinstance(value, int | float):
            return Score(float(value), value >= self.threshold, f"{value:g}, wanted {self.threshold:g}")
        raise ScoreError(f"{self.function}: expected a Score, a bool or a number, got {shown(value)}")


class _Raised(Exception):
    """What a function raised, in words. ``SystemExit`` itself would end the event loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {shown(str(error))}")


def _called(function: Callable[..., Any], case: Case, answer: Answer) -> Any:
    try:
        return function(case, answer)
    except (Exception, SystemExit) as error:
        raise _Raised(error) from None


async def _awaited(function: Callable[..., Any], case: Case, answer: Answer) -> Any:
    try:
        return await function(case, answer)
    except (Exception, SystemExit) as error:
        raise _Raised(error) from None


def load_function(name: str) -> Callable[..., Any]:
    """
    Raises:
        ValueError: there is no such function, or its module cannot be imported.
    """
    source, colon, attribute = name.rpartition(":")
    if not colon or not attribute:
        raise ValueError(f"`function`: expected `package.module:name` or `file.py:name`, got {shown(name)}")
    try:
        module = _of_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"`function`: {source} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ValueError(f"`function`: {source} has no function {attribute!r}")
    return function  # type: ignore[no-any-return]


def _of_file(path: Path) -> ModuleType:
    """Imported once, as Python does with modules that have a name."""
    name = f"suite_functions_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
