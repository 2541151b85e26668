"""What pyproject.toml cannot say: the folder config/ goes along with its subfolders, where
deployments/platform/shipped.py finds it. Keys and other files of a checkout stay out."""

from pathlib import Path

from setuptools import setup

CONFIG = Path("config")
TOP = {".yaml", ".env"}
"""Of the folder itself. A keys file is JSON."""


def shipped() -> list[tuple[str, list[str]]]:
    folders = [CONFIG, *sorted(path for path in CONFIG.rglob("*") if path.is_dir())]
    return [(f"share/promptly/{folder}", files(folder)) for folder in folders]


def files(folder: Path) -> list[str]:
    found = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [str(path) for path in found if folder != CONFIG or path.suffix in TOP]


setup(data_files=shipped())
