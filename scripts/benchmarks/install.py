"""From a machine that has Python alone to the first streamed answer, and what a second pod saves.

Each repeat makes a virtual environment, installs the tested packages and the wheel into it, makes the two
small models from packages, and starts the example config. Everything is downloaded anew. Then the same
environment starts once more with the models that are there, as a pod whose volume claim another one has
filled. On CPUs that is all that a claim saves: no graphs are compiled.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.options import Options
from benchmarks.start import CITIES, ROOT, TARGET_START_S, running, ttft_ms
from benchmarks.table import Figure, at_most, write_report

MODEL = "smollm2-135m-instruct"
TARGET_ALL_S = 300.0
TARGET_SECOND = 0.6
"""Of what the first pod takes from its start on."""


@dataclass(frozen=True)
class Installed:
    """One repeat, in seconds."""

    install_s: float
    models_s: float
    first_s: float
    second_s: float

    @property
    def all_s(self) -> float:
        return self.install_s + self.models_s + self.first_s

    @property
    def second_over_first(self) -> float:
        return self.second_s / (self.models_s + self.first_s)


def run(options: Options) -> list[Figure]:
    figures = figures_of([_measured() for _ in range(options.repeats)])
    about = {"installed": "requirements/cpu.txt with hashes, the wheel", "models": "made from packages"}
    write_report(options.out, "install", figures, about=about)
    return figures


def figures_of(repeats: Sequence[Installed]) -> list[Figure]:
    return [
        Figure(
            "from Python alone to the first streamed answer",
            "s",
            tuple(each.all_s for each in repeats),
            at_most(TARGET_ALL_S),
        ),
        Figure(
            "of it, from the start on", "s", tuple(each.first_s for each in repeats), at_most(TARGET_START_S)
        ),
        Figure("of it, installing", "s", tuple(each.install_s for each in repeats)),
        Figure("of it, making the models", "s", tuple(each.models_s for each in repeats)),
        Figure(
            "a start with the first one's models, over the first one's with making them",
            "×",
            tuple(each.second_over_first for each in repeats),
            at_most(TARGET_SECOND),
        ),
    ]


def _measured() -> Installed:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cache = {"PROMPTLY_CACHE": str(folder / "cache")}
        program = folder / "venv" / "bin" / "promptly"
        install_s = _timed(lambda: _install(folder))
        command = [str(program.with_name("python")), str(ROOT / "scripts" / "prepare_models.py")]
        models_s = _timed(lambda: _run(command, **cache))
        config = folder / "promptly.yaml"
        _run([str(program), "init", str(config), "--example", "local"])
        starts = [_timed(lambda: _answered(config, folder, program, cache)) for _ in range(2)]
        return Installed(install_s, models_s, *starts)


def _install(folder: Path) -> None:
    """As `docs/installing.md` has it for production."""
    _run([sys.executable, str(ROOT / "scripts" / "package.py"), "--output", str(folder / "dist")])
    [wheel] = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    _run([python, str(ROOT / "scripts" / "lock.py"), "--install", "cpu"], UV_NO_CACHE="1")
    _run([python, "-m", "pip", "--no-cache-dir", "install", "--no-deps", str(wheel)])


def _answered(config: Path, folder: Path, program: Path, cache: dict[str, str]) -> float:
    """Seconds that ending it took, which do not count."""
    with running(config, folder, [str(program)], **cache) as url:
        asyncio.run(_first_answer(url))
        ended = time.monotonic()
    return time.monotonic() - ended


async def _first_answer(url: str) -> None:
    async with aiohttp.ClientSession(url) as http:
        await ttft_ms(http, MODEL, CITIES[0])


def _timed(work: Callable[[], float | None]) -> float:
    """In seconds, without those that ``work`` returns."""
    began = time.monotonic()
    left_out = work()
    return time.monotonic() - began - (left_out or 0.0)


def _run(command: Sequence[str], **variables: str) -> None:
    left_out = {"PYTHONPATH", "VIRTUAL_ENV"}
    outside = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        command,
        env=outside | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print((done.stdout + done.stderr)[-3000:], file=sys.stderr)
        done.check_returncode()
