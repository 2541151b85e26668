"""Raw options of engines: their names and types, as the application's builder checks them, where vLLM is
installed. Its import takes many seconds, so nothing is imported for engines without such options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec

from serve_app.errors import SettingsError
from serve_app.settings import ModelSettings

NOT_CHECKED = (
    "engine.options: not checked, because vLLM is not installed here; the application's start checks them"
)


def raw_option_notes(
    models: Iterable[ModelSettings], find: Callable[[str], object] = find_spec
) -> tuple[str, ...]:
    """A line, if there are raw options that cannot be checked here.

    Raises:
        SettingsError: one line for each option that vLLM does not know.
    """
    given = [model for model in models if has_raw_options(model)]
    if not given:
        return ()
    if find("vllm") is None:
        return (NOT_CHECKED,)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # it would tell what it finds of devices
    from deployments.engine.vllm.arguments import option_problems

    problems = [problem for model in given for problem in option_problems(model)]
    if problems:
        raise SettingsError("\n".join(problems))
    return ()


def has_raw_options(model: ModelSettings) -> bool:
    if model.engine is None:
        return False
    speculation = model.engine.speculation
    return bool(model.engine.options or (speculation is not None and speculation.options))
