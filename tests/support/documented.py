"""The commands in the documents, and which of them a test runs, which runs elsewhere, and which cannot.

A new command needs a line in ``HERE`` (``tests/deployments/gateway/test_documented_commands.py`` runs it), in
``ELSEWHERE`` (another test runs it), or in ``CANNOT`` with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```(console|sh|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r" *```(\w*)$")
PROGRAM = re.compile(r" *(\$ |promptly |(\S*/)?python |make |curl |docker |pip |ray |serve )")
COMMENT = re.compile(r"\s{2,}# .*$")
HELP = "reference-commands.md"
LONGEST = 12
"""Lines of one command."""


@dataclass(frozen=True)
class Command:
    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


HERE: tuple[str, ...] = (
    r"curl -N http://127\.0\.0\.1:8000/v1/chat/completions -H",
    r"curl -N -i http://127\.0\.0\.1:8000/v1/chat/completions \.\.\.",
    r"curl \$URL/v1/feedback",
    r'curl "\$URL/admin/(feedback|usage)\?',
    r"curl http://127\.0\.0\.1:8000/admin/fleet",
    r"promptly (connect|check|prompts|feedback|capture|init|doctor|completion|limits|usage|plan|eval) ?",
    r"promptly (backup|restore) all\.promptly",
    r"promptly keys (create|list|rotate|revoke)",
    r"promptly audit (verify|show)",
    r"source /tmp/promptly-…/env",
    r"\.venv/bin/python scripts/make_key\.py",
    r"promptly manifest config\.yaml",
    r"(grep '\^#' chat\.yaml|mkdir -p config/chart/files)",
    r"python examples/(rag_chat|batch_job|agent)\.py",
)

IMAGES = "tests/scripts/test_build_image.py"
OWN_NODES = "tests/deployments/launcher/test_own_nodes.py"

ELSEWHERE: Mapping[str, str] = {
    r"make serve$": "tests/e2e/conftest.py",
    r"promptly serve ": "tests/e2e/conftest.py",
    r"make serve CONFIG=config/mine\.yaml": "tests/e2e/test_3_wrong_settings.py",
    r"(pip install ('promptly_serve-|openai)|make package)": "tests/test_package.py",
    r"promptly apply ": "tests/deployments/cli/test_apply_command.py",
    r"python examples/embedding_service\.py": "tests/deployments/gateway/test_examples.py",
    r"(make images|buildah build .*/gateway\.Containerfile )": IMAGES,
    r"IMAGE=\S+ CONFIG=\S+ docker compose": IMAGES,
    r"(umask 077|ray get-auth-token --generate|set -a; \. config/cluster\.env)": OWN_NODES,
    r"ray start --block --(head|address)": OWN_NODES,
    r"make check-gpu": "tests/scripts/gpu_check/test_check_gpu_runner.py",
    r"(kubectl (create namespace|apply)|helm upgrade) ": "tests/scripts/test_kubernetes_commands.py",
    r"(\.venv/bin/)?python scripts/quantize\.py --install": "tests/scripts/quantization/test_quantize_run.py",
    r"(\.venv/bin/)?python scripts/quantize\.py H": "tests/scripts/quantization/test_quantize_verdict.py",
}
"""The test that runs it, or what it starts."""

CANNOT: Mapping[str, str] = {
    r"(CONFIG=\S+ docker|buildah .*/engine)\b": "it needs GPUs, or vLLM's own image",
    r"make check$": "it runs every test, and so these",
}
"""Why no test runs it."""


def commands() -> list[Command]:
    return [
        Command(str(page.relative_to(ROOT)), text)
        for page in PAGES
        for text in _commands_of(page.read_text(encoding="utf-8"))
    ]


def matches(patterns: Iterator[str] | tuple[str, ...] | Mapping[str, str], command: Command) -> bool:
    return any(re.match(pattern, command.text) for pattern in patterns)


def not_run() -> list[tuple[Command, str]]:
    """The commands that no test runs, with the reasons."""
    return [
        (command, why)
        for command in commands()
        for pattern, why in CANNOT.items()
        if re.match(pattern, command.text)
    ]


def summary() -> str:
    """How many commands tests run, and why not the others."""
    every, left = len(commands()), not_run()
    lines = (f"{command} ({why})" for command, why in left)
    return "\n  ".join([f"tests run {every - len(left)} of {every} commands, and not:", *lines])


def hidden() -> list[Command]:
    """Commands in blocks that ``commands`` does not look into. The page made of the commands' own help is
    left out: its examples have a test of their own."""
    return [
        Command(str(page.relative_to(ROOT)), line.strip())
        for page in PAGES
        if page.name != HELP
        for line in _lines_of_other_blocks(page.read_text(encoding="utf-8"))
        if PROGRAM.match(line)
    ]


def _lines_of_other_blocks(page: str) -> Iterator[str]:
    kind: str | None = None
    for line in page.split("\n"):
        fence = FENCE.match(line)
        if fence:
            kind = fence[1] if kind is None else None
        elif kind is not None and kind not in ("console", "sh", "bash"):
            yield line


def _commands_of(page: str) -> Iterator[str]:
    for kind, block in BLOCK.findall(page):
        lines = block.split("\n")
        for number, line in enumerate(lines):
            if kind == "console" and line.lstrip().startswith("$ "):
                yield _whole(line.lstrip()[2:], lines[number + 1 :])
            elif kind != "console" and _is_command(line):
                yield COMMENT.sub("", line.strip())


def _is_command(line: str) -> bool:
    """No comment, and no line of a file of variables."""
    return bool(line.strip()) and not re.match(r"#|[A-Za-z_]+=\S*$", line.strip())


def _whole(line: str, following: list[str]) -> str:
    """A command with the lines that its open quotes and backslashes take in."""
    text = COMMENT.sub("", line)
    for more in following[:LONGEST]:
        try:
            shlex.split(text)
        except ValueError:
            text = f"{text}\n{more}"
            continue
        if not text.endswith("\\"):
            break
        text = f"{text}\n{COMMENT.sub('', more)}"
    return text.rstrip()
