"""llm-compressor in its own virtual environment, because its versions of transformers and compressed-tensors
conflict with vLLM's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

from quantization.schemes import QuantizeError

SCRIPTS = Path(__file__).parents[1]
FOLDER = SCRIPTS.parent / ".quantize-venv"
REQUIREMENT = "llmcompressor==0.14.0"
COMPLETE = "installed"
"""This file marks a complete installation."""

INSTALL_TIMEOUT_S = 1800.0
HOW = "make it with `python scripts/quantize.py --install` (minutes, about 2 GB)"


def interpreter(folder: Path = FOLDER) -> Path:
    """The Python interpreter that has llm-compressor.

    Raises:
        QuantizeError: it is not installed.
    """
    found = folder / "bin" / "python"
    if not (folder / COMPLETE).is_file() or not found.exists():
        raise QuantizeError(f"{REQUIREMENT} is not installed in {folder}: {HOW}")
    return found


def install(folder: Path = FOLDER) -> Path:
    """Install llm-compressor unless it is installed already.

    Raises:
        QuantizeError: pip could not install it; the message is pip's own.
    """
    if (folder / COMPLETE).is_file():
        return interpreter(folder)
    print(f"installing {REQUIREMENT} into {folder} ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)  # the rest of an interrupted installation
    venv.create(folder, with_pip=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    # The same version of torch as here, whose build for this hardware is in pip's cache.
    wanted = [REQUIREMENT, f"torch=={version('torch')}"]
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise QuantizeError(f"{' '.join(wanted)}: {done.stderr.strip()[-2000:]}")
    (folder / COMPLETE).write_text("\n".join(wanted) + "\n", encoding="utf-8")
    return interpreter(folder)


def environment() -> dict[str, str]:
    """The worker's environment variables: it downloads nothing and imports nothing from this environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
