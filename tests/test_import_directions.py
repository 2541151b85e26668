"""The direction of imports is the architecture: checked for every folder, not hoped for."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from deployments.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve_app", "deployments", "scripts")
RUN_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}

DEPLOYMENTS = (
    {"platform"},
    {"wire"},
    {"gateway", "embedder", "engine", "cache", "responses", "accounts", "feedback", "evaluation", "launcher"},
    {"graph", "cli"},
)
"""From the bottom up. A part imports parts below its own line and none beside it."""

GATEWAY = (
    {"request"},
    {"accounts", "prompts", "others"},
    {"placement", "guardrails"},
    {"send"},
    {"lookup"},
    {"monitoring"},
    {"experiments"},
    {"generation", "endpoints", "responses", "sign_in"},
    {"feedback"},
    {"app"},
    {"runtime", "autoscaling"},
    {"deployment"},
)

ENGINE = (
    {"cpu", "model_files", "rewriting", "sleep", "start"},
    {"autoscaling", "checks", "parsers", "resume"},
    {"sizing", "vllm"},
    {"deployment"},
    {"data_parallel", "prefill", "replica"},
)

SERVE_APP = (
    {"errors", "smoothing", "buckets", "embedding", "redaction", "model_store", "console", "clients"}
    | {"breaker", "quarantine", "traffic", "app", "version", "file_errors", "json_errors"},
    {"settings", "quotas", "gateways", "realtime", "stored_responses", "autoscaling", "speculation"},
    {"openai", "media", "planning", "front_door", "usage", "audit"},
    {"cache", "dialects", "engines", "items", "guardrails", "machine"},
    {"api", "wire", "manifests", "upgrades"},
    {"fleet"},
    {"request", "routing"},
    {"admission", "latency", "model_choice", "monitoring", "recent", "prompts"},
    {"alerts", "hedging", "accounts", "metering", "sign_in", "evaluation", "feedback"}
    | {"suggestions", "backup"},
    {"experiments"},
)

IMPORTS_RAY: Mapping[str, str] = {
    "deployments.gateway.deployment": "it is the Serve class: Serve's context, its handles, Ray's metrics",
}
"""Modules of the gateway that import Ray, with what they need of it."""

IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "ray" in sys.modules:
        sys.exit(f"importing {name} imports Ray")
"""

SCRIPTS = (
    {"sim_engine", "quantization", "autoscaling_simulation", "browser", "dashboards"},
    {"cache_lab"},
    {"benchmarks"},
    {"gpu_check"},
)
"""The folders of ``scripts/`` from the bottom up. Beside them stand the commands, which no folder imports."""

IMPORTED_BY_NAME = {
    "benchmarks.peers.scripted_engine",
    "benchmarks.weight_report",
    "gpu_check.registry",
}
"""Modules of ``scripts/`` that an engine imports because a setting names them, or ``check_gpu.py`` for its
option ``--registry``."""

LOADED_BY_NAME: Mapping[str, str] = {
    "serve_app.app": "config files: `import_path: serve_app.app:build`",
    "deployments.cli.__main__": "`python -m deployments.cli`",
    "deployments.engine.start.local_model": "Ray's `callback_config` (engine/deployment.py)",
    "deployments.engine.vllm.core_imports": "the fork server's `imported` (engine/vllm/fork_server.py)",
    "deployments.platform.front_door": "Serve's controller callback (deployments/launcher/plan.py)",
    "deployments.platform.ingress_middleware": "Serve's proxy callback (deployments/launcher/plan.py)",
    "deployments.launcher.serve_run": "`serve_command`, a process of its own (launcher/plan.py)",
}
"""Modules that no other module imports, with what loads them."""

SETTINGS_STAND_ON = {"errors", "file_errors", "settings"}
"""All of ``serve_app`` may read settings, so settings may read next to nothing of it."""


def modules(package: str) -> dict[str, Path]:
    """Every module of ``package`` by its dotted name; a package's own is that of its ``__init__``."""
    top = ROOT / package
    base = top.parent if package != "scripts" else top
    found = {}
    for path in top.rglob("*.py"):
        parts = path.relative_to(base).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names, wherever in the module they are imported: of ``from a import b`` ``a`` and ``a.b``."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@cache
def arrows(package: str) -> list[tuple[str, str]]:
    """Each import of one of ``package``'s modules by another."""
    known = modules(package)
    return [
        (name, other) for name, path in known.items() for other in imported(path) & (known.keys() - {name})
    ]


def children(folder: str, edges: list[tuple[str, str]]) -> Mapping[str, set[str]]:
    """What the modules and folders right in ``folder`` import of one another."""
    depth = len(folder.split(".")) if folder else 0
    inside = f"{folder}." if folder else ""
    graph: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        if source.startswith(inside) and target.startswith(inside):
            one, other = source.split(".")[depth], target.split(".")[depth]
            if one != other:
                graph[one].add(other)
    return graph


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_has_a_circle(package: str) -> None:
    edges = arrows(package)
    folders = {".".join(name.split(".")[:depth]) for name in modules(package) for depth in range(9)}
    assert edges
    for folder in sorted(folders):
        try:
            TopologicalSorter(children(folder, edges)).prepare()
        except CycleError as error:
            pytest.fail(f"{folder or package}: {' imports '.join(reversed(error.args[1]))}")


def upward(folder: str, order: tuple[set[str], ...], package: str = "deployments") -> list[str]:
    """Imports that do not point from a later line of ``order`` to an earlier one."""
    line = {name: number for number, names in enumerate(order) for name in names}
    return [
        f"{one} imports {other}"
        for one, others in children(folder, arrows(package)).items()
        for other in others
        if one in line and other in line and line[other] >= line[one]
    ]


@pytest.mark.parametrize(
    ("folder", "order"),
    [
        ("serve_app", SERVE_APP),
        ("deployments", DEPLOYMENTS),
        ("deployments.gateway", GATEWAY),
        ("deployments.engine", ENGINE),
    ],
)
def test_each_part_stands_in_one_line_and_imports_only_what_is_below(
    folder: str, order: tuple[set[str], ...]
) -> None:
    """A new module or folder is entered here before it can import anything unnoticed."""
    package, depth = folder.split(".", maxsplit=1)[0], folder.count(".") + 1
    inside = [name.split(".") for name in modules(package) if name.startswith(f"{folder}.")]
    assert sorted(part for line in order for part in line) == sorted({parts[depth] for parts in inside})
    assert not upward(folder, order, package)


def test_the_folders_of_scripts_import_only_what_is_below_them() -> None:
    folders = {name.split(".")[0] for name in modules("scripts") if "." in name}
    assert folders == set[str]().union(*SCRIPTS)
    assert not upward("", SCRIPTS, "scripts")


def test_no_folder_of_scripts_imports_a_command() -> None:
    graph = children("", arrows("scripts"))
    commands = {name for name in modules("scripts") if (ROOT / "scripts" / f"{name}.py").exists()}
    assert "lock" in commands
    for folder in set[str]().union(*SCRIPTS):
        assert not graph[folder] & commands, folder


def test_every_module_of_scripts_is_imported_or_started() -> None:
    used = {target for _, target in arrows("scripts")} | IMPORTED_BY_NAME
    for name, path in modules("scripts").items():
        is_started = path.name == "__init__.py" or '__name__ == "__main__"' in path.read_text()
        assert name in used or is_started, f"nothing imports {name}"


def test_settings_are_read_by_all_and_read_nothing() -> None:
    graph = children("serve_app", arrows("serve_app"))
    assert graph["settings"] <= SETTINGS_STAND_ON
    assert not graph["errors"]


def test_importing_one_module_of_the_gateway_does_not_import_all_of_it() -> None:
    """A folder's ``__init__`` runs before any module in it."""
    for path in (ROOT / "deployments" / "gateway").rglob("__init__.py"):
        assert not imported(path), path


def test_importing_modules_of_the_gateway_does_not_import_ray() -> None:
    """In a fresh process: this one may have imported Ray. Types alone stand under ``TYPE_CHECKING``."""
    gateway = {name for name in modules("deployments") if name.startswith("deployments.gateway.")}
    assert gateway >= IMPORTS_RAY.keys()
    command = [sys.executable, "-c", IMPORT_EACH, *sorted(gateway - IMPORTS_RAY.keys())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_reads_bytes_that_can_run_code(package: str) -> None:
    for path in modules(package).values():
        assert not RUN_CODE & {name.split(".")[0] for name in imported(path)}, path


def test_tests_import_the_launcher_by_its_place_in_the_package() -> None:
    """It was a folder of ``scripts/``; only ``deployments.launcher`` is there now."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) launcher\b", path.read_text(), re.MULTILINE), path


@pytest.mark.parametrize("package", ["serve_app", "deployments"])
def test_nothing_imports_tests_or_scripts(package: str) -> None:
    for path in modules(package).values():
        assert not {"tests", "scripts"} & {name.split(".")[0] for name in imported(path)}, path


def test_every_module_is_imported_or_loaded_by_name() -> None:
    known = {**modules("serve_app"), **modules("deployments")}
    used = {name for importer, path in known.items() for name in imported(path) - {importer}}
    unused = {name for name, path in known.items() if path.name != "__init__.py" and name not in used}
    commands = {f"deployments.cli.{name}" for name in COMMANDS}
    assert commands <= known.keys()
    assert unused - commands == LOADED_BY_NAME.keys()
