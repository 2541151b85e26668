"""A class that is long, or has many methods, says in its docstring why, and has a limit all the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve_app", "deployments", "scripts")

MOST_LINES = 120
MOST_METHODS = 12

REASON = re.compile(r"\bIt (?:is (?:one class|long|large)|has (?:this )?many methods) because \w")
"""The sentence about the size itself; that some other sentence gives a reason is not enough."""

MOST_LINES_WITH_REASON = 210
MOST_METHODS_WITH_REASON = 30
LONGER: Mapping[str, int] = {
    "deployments/gateway/request/exchange.py: Exchange": 260,
    "deployments/gateway/endpoints/realtime_session.py: RealtimeSession": 270,
}
"""Lines of those that are above. These numbers only go down: a class that outgrows its own is cut."""


def large_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and is_large(node):
                    yield f"{path.relative_to(ROOT)}: {node.name}", node


def is_large(node: ast.ClassDef) -> bool:
    return lines(node) > MOST_LINES or methods(node) > MOST_METHODS


def lines(node: ast.ClassDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def methods(node: ast.ClassDef) -> int:
    return sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)


def stated(node: ast.ClassDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


def test_a_large_class_gives_the_reason_of_its_size() -> None:
    without = [name for name, node in large_classes() if not REASON.search(stated(node))]
    assert not without, "cut these by owner, or say in their docstrings why each is one class"


def test_a_large_class_with_a_reason_has_a_limit_too() -> None:
    found = dict(large_classes())
    assert found.keys() >= LONGER.keys()
    assert not [
        name
        for name, node in found.items()
        if lines(node) > LONGER.get(name, MOST_LINES_WITH_REASON) or methods(node) > MOST_METHODS_WITH_REASON
    ]
    assert not [name for name in LONGER if lines(found[name]) <= MOST_LINES_WITH_REASON]
