"""Write docs/settings.md from the settings classes, so that page and classes agree.

python scripts/document_settings.py [--check]
"""

from __future__ import annotations

import argparse
import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from serve_app.settings import Settings

TARGET = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# Settings

The `args` of a Promptly application in a Serve config file. Made by `scripts/document_settings.py` from the
settings classes; a test fails if this page is out of date. A key that is not listed is refused.
"""


def classes(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every settings class with its path, outermost first."""
    yield path, model
    for name, info in model.model_fields.items():
        many = "[]" if "tuple" in str(info.annotation) else ""
        for inner in models_in(info.annotation):
            yield from classes(inner, f"{path}.{name}{many}".lstrip("."))


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models_in(argument)]


def type_name(annotation: Any) -> str:
    """The name of a type on the page: ``Literal["a", "b"] | None`` is ``"a", "b"``; a class gets the name of
    its YAML form."""
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return "list"
    arguments = [item for item in typing.get_args(annotation) if item is not type(None) and item is not ...]
    if arguments and typing.get_origin(annotation) is not dict:
        return " or ".join(type_name(item) for item in arguments)
    if models_in(annotation):
        return "mapping"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true/false"}.get(
        getattr(annotation, "__name__", ""), "mapping"
    )


def default_of(info: FieldInfo) -> str:
    if info.is_required():
        return "**required**"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    return "–" if value in (None, {}, ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def bounds(info: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [
        f"{sign} {getattr(item, name)}"
        for item in info.metadata
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ]
    return f" ({', '.join(found)})" if found else ""


def section(path: str, model: type[BaseModel]) -> str:
    about = inspect.cleandoc(model.__doc__ or "").replace("``", "`")
    lines = [f"## `{path or 'args'}`", "", about, "", "| key | value | default | |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        kind = type_name(info.annotation) + bounds(info)
        lines.append(f"| `{name}` | {kind} | {default_of(info)} | {info.description or ''} |")
    return "\n".join(lines)


def page() -> str:
    return "\n\n".join([HEAD.rstrip(), *(section(path, model) for path, model in classes(Settings))]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    if parser.parse_args().check:
        return 0 if TARGET.read_text() == page() else 1
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
