"""The reference pages are what the code says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from document_reference import DOCS, PAGES, first_sentence, folders

from deployments.cli.completion import subparsers
from deployments.cli.main import COMMANDS, build_parser
from serve_app.api.routes import ROUTES
from serve_app.monitoring.metrics import METRICS

ROOT = Path(__file__).parents[1]
REMARK = re.compile(r"\s{2,}\S.*$|\s+(#|\||>>?)\s.*$")
"""What follows a command in an example: what it does, or where its output goes."""


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run `python scripts/document_reference.py`"


def test_every_command_route_and_metric_is_on_its_page() -> None:
    commands, routes, metrics, _ = (page() for page in PAGES.values())
    assert all(f"## promptly {name}\n" in commands for name in COMMANDS)
    assert all(f"## {route.path}\n" in routes for route in ROUTES)
    assert all(f"| `{metric.exported}` |" in metrics for metric in METRICS)


def test_every_module_is_on_its_page_in_the_section_of_its_folder() -> None:
    sections = PAGES["reference-modules.md"]().split("\n## ")[1:]
    listed = {
        f"{title.strip('/')}/{module}"
        for title, _, rows in (section.partition("\n") for section in sections)
        for module in re.findall(r"^\| `(\w+\.py)` \| \S", rows, re.MULTILINE)
    }
    modules = {
        path.relative_to(ROOT).as_posix()
        for part in ("serve_app", "deployments", "scripts")
        for path in (ROOT / part).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert len(modules) > 500
    assert listed == modules, "a module without a docstring has no sentence to be listed with"
    assert len(sections) == len(folders())


def examples() -> list[str]:
    """The commands in the long descriptions of subcommands."""
    return [
        REMARK.sub("", line[line.index("promptly ") :])
        for parser in subparsers(build_parser(tuple(COMMANDS))).values()
        for line in (parser.description or "").split("\n")
        if re.match(r"    (\w+: +)?promptly ", line)
    ]


@pytest.mark.parametrize("command", examples())
def test_an_example_in_the_help_is_a_command_and_names_files_that_are_there(command: str) -> None:
    _, *given = shlex.split(command)
    build_parser(given[:1]).parse_args(given)
    files = [each for each in given if each.startswith("config/") and "--rules" not in given]
    assert [each for each in files if not (ROOT / each).is_file()] == []


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("How fast a queue drains.", "How fast a queue drains."),
        ("Sampling options that vLLM 0.29\nrefuses. More.", "Sampling options that vLLM 0.29 refuses."),
        ("``/health``: for balancers. It needs no key.", "`/health`: for balancers."),
        ("Yields :class:`Problem`.\n\nMore.", "Yields `Problem`."),
        ("Is it fast? Yes.", "Is it fast?"),
        ("Without an end\n\nMore.", "Without an end"),
    ],
)
def test_a_module_is_listed_with_the_first_sentence_of_its_docstring(
    docstring: str, sentence: str, tmp_path: Path
) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{docstring}"""\n', encoding="utf-8")
    assert first_sentence(module) == sentence


def test_a_page_is_the_same_for_every_user(tmp_path: Path) -> None:
    """Defaults are in the user's folder, and a terminal has a width."""
    elsewhere = {"PROMPTLY_CACHE": str(tmp_path), "COLUMNS": "40", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "scripts/document_reference.py", "--check"],
        cwd=ROOT,
        env=os.environ | elsewhere | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
