"""Where the files lie that come with Promptly but are no part of its modules: the config files."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
DISTRIBUTION = "promptly-serve"
SHARED = "share/promptly/config/"
"""Where a wheel puts them, below the virtual environment's own folder (``pyproject.toml``, data files)."""


def shipped_folder() -> Path:
    """The folder ``config`` of the checkout, or what was installed with the package.

    Raises: FileNotFoundError: the installation is not complete.
    """
    if (CHECKOUT / "pyproject.toml").is_file():
        return CHECKOUT / "config"
    return _installed()


def _installed() -> Path:
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if str(file).endswith(f"{SHARED}local.yaml"):
            found = Path(str(file.locate())).resolve().parent
            if found.is_dir():
                return found
    raise FileNotFoundError(
        "the config files of Promptly are not installed: "
        f"run `pip install --force-reinstall --no-deps {DISTRIBUTION}`"
    )
