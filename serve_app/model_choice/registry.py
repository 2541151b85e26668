"""The rules by their names in the settings, and rules that users wrote."""

from __future__ import annotations

import importlib
from typing import cast

from serve_app.errors import SettingsError
from serve_app.model_choice.base import ModelRule
from serve_app.model_choice.cheapest import cheapest_that_fits

RULES: dict[str, ModelRule] = {"cheapest-that-fits": cheapest_that_fits}


def load_rule(name: str) -> ModelRule:
    """A registered rule, or the function that ``module:function`` names. Imports that module.

    Raises:
        SettingsError: the module cannot be imported, or has no such function.
    """
    if name in RULES:
        return RULES[name]
    module, _, function = name.partition(":")
    try:
        rule = getattr(importlib.import_module(module), function)
    except Exception as error:  # a user's module can raise any error
        raise SettingsError(
            f"auto_models: rule = {name!r}: {type(error).__name__}: {error}; expected a function that can be "
            "imported where the gateway runs, as `module:function`"
        ) from error
    if not callable(rule):
        raise SettingsError(f"auto_models: rule = {name!r}: it is not a function but {type(rule).__name__}")
    return cast("ModelRule", rule)
