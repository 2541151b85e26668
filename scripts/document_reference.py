"""Write the reference pages of commands, HTTP routes, metrics and modules from the code, so that they agree.

python scripts/document_reference.py [--check]
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from deployments.cli.completion import subparsers
from deployments.cli.main import COMMANDS, build_parser
from serve_app.api.openapi import ACCESS
from serve_app.api.roles import Role
from serve_app.api.routes import ROUTES, Operation, Parameter, Route
from serve_app.errors import PromptlyError
from serve_app.model_store import default_cache_dir
from serve_app.monitoring.metrics import BUCKETS_S, METRICS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PARTS = ("serve_app", "deployments", "scripts")
"""The folders with modules, in the order of their page."""
MADE = "Made by `scripts/document_reference.py` from the code; a test fails if this page is out of date."


def commands_page() -> str:
    """All of ``promptly``."""
    lines = ["# Commands", "", f"What `promptly` can do. {MADE}", "", "| command | |", "|---|---|"]
    lines += [f"| [`promptly {name}`](#promptly-{name}) | {about} |" for name, about in COMMANDS.items()]
    for name, parser in subparsers(build_parser(tuple(COMMANDS))).items():
        about = (parser.description or "").strip().split("\n")
        lines += ["", f"## promptly {name}", "", "```text", *about, "```"]
        lines += _options(f"promptly {name}", parser)
        for inner, nested in subparsers(parser).items():
            lines += _options(f"promptly {name} {inner}", nested)
    return "\n".join(lines) + "\n"


def _options(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    actions = [each for each in parser._actions if _is_shown(each)]
    if not actions:
        return
    yield from ("", f"`{command}`:", "", "| argument | |", "|---|---|")
    for action in actions:
        yield f"| {_name(action)} | {_cell(_about(action))} |"


def _is_shown(action: argparse.Action) -> bool:
    kinds = (argparse._HelpAction, argparse._SubParsersAction)
    return not isinstance(action, kinds) and action.help != argparse.SUPPRESS


def _name(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    shown = value if isinstance(value, str) else " ".join(value)
    if action.option_strings:
        takes = "" if action.nargs == 0 else f" {shown}"
        return ", ".join(f"`{option}{takes}`" for option in action.option_strings)
    return f"`{shown}`"


def _about(action: argparse.Action) -> str:
    """Its help, its choices and whether it must be there."""
    said = [str(action.help)] if action.help else []
    if action.choices and not isinstance(action, argparse._SubParsersAction):
        listed = ", ".join(f"`{each}`" for each in action.choices)
        said.append(f"one of {listed}")
    if action.option_strings and action.required:
        said.append("required")
    return "; ".join(said)


def routes_page() -> str:
    """Every route of the gateway."""
    lines = ["# HTTP routes", "", "Every path of the endpoint, with who may use it. A running endpoint says"]
    lines += [f"more at `/openapi.json` and `/docs`. {MADE}", ""]
    lines += ["| path | methods | who |", "|---|---|---|"]
    for route in ROUTES:
        methods = ", ".join(route.operations)
        lines.append(f"| [`{route.path}`](#{_anchor(route)}) | {methods} | {_who(route)} |")
    for route in ROUTES:
        lines += ["", f"## {route.path}", "", f"{ACCESS[route.access]} Roles: {_who(route)}."]
        for method, operation in route.operations.items():
            lines += _operation("WebSocket" if route.is_socket else method, operation)
    return "\n".join(lines) + "\n"


def _operation(method: str, operation: Operation) -> Iterator[str]:
    yield ""
    yield f"**{method}**: {_line(operation.summary)}"
    facts = []
    if operation.takes:
        facts.append(f"Takes {_listed(operation.takes)}.")
    if operation.gives:
        facts.append(f"Gives {_listed(operation.gives)}.")
    if operation.audit:
        facts.append(f"In the audit log: `{operation.audit}`.")
    errors = _errors(operation)
    if errors:
        facts.append(errors)
    if facts:
        yield " ".join(facts)
    given = [("query", each) for each in operation.query] + [("header", each) for each in operation.headers]
    if given:
        yield from ("", "| parameter | in | |", "|---|---|---|")
        yield from (_parameter(where, each) for where, each in given)


def _parameter(where: str, parameter: Parameter) -> str:
    return f"| `{parameter.name}` | {where} | {_cell(parameter.description)} |"


def _errors(operation: Operation) -> str:
    if operation.errors is None:
        return "An engine answers: any of its errors is possible."
    statuses = sorted({str(error.status) for error in operation.errors if error is not PromptlyError})
    return f"Errors: {', '.join(statuses)}." if statuses else ""


def _who(route: Route) -> str:
    if route.access.value == "open":
        return "everybody"
    return ", ".join(f"`{role.value}`" for role in Role if role in route.may_use)


def _anchor(route: Route) -> str:
    """The anchor that GitHub makes of the title."""
    kept = (char for char in route.path.lower() if char.isalnum() or char in "-_ ")
    return "".join(kept).replace(" ", "-")


def metrics_page() -> str:
    """The gateways' metrics."""
    lines = ["# Metrics", "", f"What gateways export, by the name on Ray's Prometheus page. {MADE}"]
    lines += ["How they are read: [Running it](operations.md#metrics).", ""]
    lines += ["| metric | kind | labels | |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `{metric.exported}` | {metric.kind.name.lower()} | {labels} | {_cell(metric.description)} |"
        )
    buckets = ", ".join(f"{bound:g}" for bound in BUCKETS_S)
    return "\n".join([*lines, "", f"Buckets of histograms, in seconds: {buckets}."]) + "\n"


def modules_page() -> str:
    """Every module, by folder."""
    lines = ["# Modules", "", "Every module, with the first sentence of its docstring: what it decides"]
    lines += [f"or does. Where a change starts: [Architecture](architecture.md). {MADE}"]
    for folder, modules in folders().items():
        lines += ["", f"## {folder}/", ""]
        package = ROOT / folder / "__init__.py"
        if package.is_file():
            lines += [first_sentence(package), ""]
        lines += ["| module | |", "|---|---|"]
        lines += [f"| `{module.name}` | {_cell(first_sentence(module))} |" for module in modules]
    return "\n".join(lines) + "\n"


def folders() -> dict[str, list[Path]]:
    """The folders that have modules, by their path from the root; the file of a package itself is none."""
    found: dict[str, list[Path]] = {}
    for part in PARTS:
        modules = (path for path in (ROOT / part).rglob("*.py") if path.name != "__init__.py")
        for module in sorted(modules, key=lambda path: path.relative_to(ROOT).parts):
            found.setdefault(module.parent.relative_to(ROOT).as_posix(), []).append(module)
    return dict(sorted(found.items(), key=lambda item: (PARTS.index(item[0].split("/")[0]), item[0])))


def first_sentence(module: Path) -> str:
    """The first sentence of its docstring, as Markdown; empty without one."""
    said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    said = " ".join(said.split("\n\n")[0].split())
    said = re.sub(r":\w+:(?=`)", "", said).replace("``", "`")
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", said)[0]


def _listed(media: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in media)


def _line(text: str) -> str:
    """On one line, and of no machine: defaults are in its user's folder."""
    return " ".join(text.replace(str(default_cache_dir()), "~/.cache/promptly").split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|").replace("<", "&lt;")


PAGES = {
    "reference-commands.md": commands_page,
    "reference-routes.md": routes_page,
    "reference-metrics.md": metrics_page,
    "reference-modules.md": modules_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is out of date")
    options = parser.parse_args()
    old = [name for name, page in PAGES.items() if not _is_current(DOCS / name, page())]
    if options.check:
        sys.stderr.writelines(f"docs/{name} is out of date\n" for name in old)
        return 1 if old else 0
    for name in old:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"docs/{name} is written")
    return 0


def _is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
