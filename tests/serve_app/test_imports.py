"""``serve_app`` decides; what reads a clock or a socket is in ``deployments``."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
