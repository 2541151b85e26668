"""What a module defines is used outside of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve_app", "deployments", "scripts")
NAMES = re.compile(r"[\w.:/]+")
"""A string that may name a function: for Ray, for vLLM, for ``getattr``."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
PLAIN = {"Struct", "Exception", "Enum", "StrEnum", "NamedTuple", "Generic", "ABC"}
"""Bases that call no method by themselves."""

REGISTERS = ("validator", "serializer", "route", "register")
"""Parts of decorators that hand a function to those who call it."""

USED_ELSEWHERE: Mapping[str, str] = {
    "EdgeStore.is_settled": "tests of a store after a crash read it",
    "RealtimeConnection.is_closed": "the scripted engine is the tests' engine; they ask what it saw",
    "Finding.tells": "the stopwatch of `make bench` prints findings; its test judges them",
    "LoadProbe.log_engine_initialized": "vLLM calls it",
    "_Nothing._bootstrap": "Python calls it in a process that the fork server has forked",
    "on_files": "MkDocs calls it (scripts/docs_site.py)",
    "on_page_markdown": "MkDocs calls it (scripts/docs_site.py)",
    "LoadProbe.record_sleep_state": "vLLM calls it",
}
"""Names that nothing outside of tests uses, with who does."""


def trees() -> Iterator[ast.Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def defined(tree: ast.Module, own: set[str]) -> Iterator[str]:
    """Names of the module's own functions, classes and constants, and ``Class.method``. A class with a base
    that is not among ``own`` has methods that a library calls."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and bases(node) <= own:
            methods = (part for part in node.body if isinstance(part, Function))
            yield from (f"{node.name}.{part.name}" for part in methods if not is_registered(part))


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].split(".")[-1] for base in node.bases}


def is_registered(function: Function) -> bool:
    return any(word in ast.unparse(each) for each in function.decorator_list for word in REGISTERS)


def used(tree: ast.Module) -> Iterator[str]:
    """Names that are read, attributes, and what strings name; ``__all__`` uses nothing."""
    for statement in tree.body:
        if not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    yield node.id
                elif isinstance(node, ast.Attribute):
                    yield node.attr
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from re.split(r"[.:/]", node.value) if NAMES.fullmatch(node.value) else ()


def unused(modules: list[ast.Module]) -> set[str]:
    names = {name for tree in modules for name in used(tree)}
    classes = {node.name for tree in modules for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = {name for tree in modules for name in defined(tree, classes | PLAIN)}
    return {name for name in found if (last := name.split(".")[-1]) not in names and last[:2] != "__"}


def test_every_name_is_used_outside_of_tests() -> None:
    assert unused(list(trees())) == USED_ELSEWHERE.keys()


def test_names_that_only_their_definition_has_are_noticed() -> None:
    module = """
        LIMIT = 3
        USED = 4
        class Owner:
            def work(self): return USED
            def rest(self): return self.by_name("told")
        def told(): ...
        Owner().work()
        __all__ = ["LIMIT"]
    """
    text = "\n".join(line.removeprefix(" " * 8) for line in module.splitlines())
    assert unused([ast.parse(text)]) == {"LIMIT", "Owner.rest"}
