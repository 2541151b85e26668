"""What contributors meet first: the workflow, the forms of issues and pull requests, `make serve`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.main import build_parser

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def commands_of(*arguments: str) -> list[str]:
    """What `make` would run, its variables expanded; nothing is run. Without the variables of the `make` that
    may have started the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env=kept,
    )
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_workflow_runs_the_script_of_all_gates_and_no_gate_beside_it() -> None:
    workflow = read(GITHUB / "workflows" / "ci.yml")
    assert workflow[True] == {"push": {"branches": ["main"]}, "pull_request": None}, (
        "`on` is true in YAML 1.1"
    )
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] > 0
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [".ci/run", "make package"]


def test_the_workflow_may_only_read() -> None:
    workflow = read(GITHUB / "workflows" / "ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    (checkout,) = (
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    )
    assert checkout["with"]["persist-credentials"] is False


def test_the_workflow_takes_the_python_that_the_package_supports() -> None:
    (job,) = read(GITHUB / "workflows" / "ci.yml")["jobs"].values()
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in str(step))
    supported = re.search(r'^requires-python = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert supported is not None
    assert python in supported[1]


def test_the_script_of_all_gates_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=10)
    targets = set(re.findall(r"\bmake ([a-z-]+)", script.read_text(encoding="utf-8")))
    assert targets == {"setup", "lint", "test"}
    assert all(re.search(rf"^{each}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for each in targets)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_requires(form: Path) -> None:
    """GitHub offers no form with an error in it, and says so nowhere a user looks."""
    found = read(form)
    assert found["name"]
    assert found["description"]
    fields = [each for each in found["body"] if each["type"] != "markdown"]
    assert all(each["attributes"]["label"] for each in fields)
    names = [each["id"] for each in fields]
    assert len(names) == len(set(names))
    assert any(each.get("validations", {}).get("required") is True for each in fields)
    assert all(each["attributes"]["value"] for each in found["body"] if each["type"] == "markdown")


def test_there_are_forms_and_an_issue_may_be_written_without_one() -> None:
    assert [form.stem for form in FORMS] == ["bug", "wish"]
    assert read(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": True}


def test_a_pull_request_is_asked_for_what_the_gates_do_not_see() -> None:
    text = (GITHUB / "pull_request_template.md").read_text(encoding="utf-8")
    named = re.findall(r"\b(?:docs|scripts|serve_app)/[\w/.]+\.(?:md|py)|\b[A-Z]+\.md", text)
    assert {"CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md"} <= set(named)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert "- [ ] `make check` passes" in text


def test_make_serve_is_promptly_serve_after_the_set_up() -> None:
    serve = "exec .venv/bin/python -m deployments.cli serve"
    assert commands_of("serve") == ["scripts/setup_env.sh", f"{serve} config/local.yaml"]
    given = commands_of("serve", "CONFIG=mine.yaml", "PORT=9000", "ARGS=--no-check")
    assert given[-1] == f"{serve} mine.yaml --port 9000 --no-check"
    file, *options = shlex.split(given[-1])[5:]
    options_given = build_parser(["serve"]).parse_args(["serve", file, *options])
    assert (options_given.config, options_given.port) == (Path("mine.yaml"), 9000)


def test_make_images_builds_the_image_that_can_be_kept() -> None:
    assert commands_of("images", "ARGS=--output image.tar") == [
        "scripts/setup_env.sh",
        ".venv/bin/python scripts/build_image.py --output image.tar",
    ]


def test_make_check_is_lint_and_every_test() -> None:
    (needs,) = re.findall(r"^check: ([a-z ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert needs.split() == ["lint", "test"]
