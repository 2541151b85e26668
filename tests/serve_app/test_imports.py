"""The direction of imports is the architecture: checked, not hoped for."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
PURE_FORBIDDEN = {"ray", "aiohttp", "vllm", "torch", "starlette", "uvicorn", "qdrant_edge", "deployments"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_serve_app_is_pure_except_for_the_builder() -> None:
    files = [path for path in (ROOT / "serve_app").rglob("*.py") if path.name != "app.py"]
    wrong = {str(path): found for path in files if (found := PURE_FORBIDDEN & set(imported(path)))}
    assert len(files) > 20
    assert not wrong


def test_no_module_reads_bytes_that_can_run_code() -> None:
    for package in ("serve_app", "deployments", "scripts"):
        for path in (ROOT / package).rglob("*.py"):
            assert not RUN_CODE & set(imported(path)), path


def test_nothing_imports_tests_or_scripts() -> None:
    for package in ("serve_app", "deployments"):
        for path in (ROOT / package).rglob("*.py"):
            assert not {"tests", "scripts"} & set(imported(path)), path
