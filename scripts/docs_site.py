"""Build the documents as a site with search, into build/site; a broken link ends it with status 1.

    python scripts/docs_site.py [--serve] [--output FOLDER] [--venv FOLDER]

MkDocs goes into a virtual environment of its own (.docs-venv): it moves no package of the application. It
also loads this file as its hook (``mkdocs.yml``), which makes pages of README.md and its neighbours.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "mkdocs.yml"
VENV = ROOT / ".docs-venv"
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
}
"""Pages that lie beside docs/, with their names on the site."""

LINK = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: the pages beside docs/."""
    from mkdocs.structure.files import File

    for source, name in BESIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=site_text(text, "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs' hook: a page's text with links of the site."""
    return markdown if page.file.src_uri in BESIDE.values() else site_text(markdown, "docs")


def site_text(markdown: str, folder: str) -> str:
    """The text of a page in ``folder`` of the checkout. A link to a file that is no page becomes its text."""

    def link(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        name, sign, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, name))
        if path.startswith("docs/"):
            return f"[{text}]({path.removeprefix('docs/')}{sign}{anchor})"
        if path in BESIDE:
            return f"[{text}]({BESIDE[path]}{sign}{anchor})"
        return text

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def wanted() -> list[str]:
    """The packages of the extra `docs`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["optional-dependencies"]["docs"]
    return found


def install(venv: Path, patience_s: float | None = None) -> None:
    """Make the virtual environment, or bring it to what is wanted. This environment's pip fills it: one of
    its own would take longer to install than MkDocs. Raises: CalledProcessError, TimeoutExpired."""
    stamp, packages = venv / "packages", wanted()
    if stamp.is_file() and stamp.read_text(encoding="utf-8").split("\n") == packages:
        return
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    into = ["--disable-pip-version-check", "--python", str(venv / "bin" / "python")]
    command = [sys.executable, "-m", "pip", *into, "install", "--quiet", "--no-compile", *packages]
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, timeout=patience_s)
    stamp.write_text("\n".join(packages), encoding="utf-8")


def mkdocs(venv: Path, *arguments: str) -> list[str]:
    return [str(venv / "bin" / "python"), "-m", "mkdocs", *arguments]


def build(venv: Path, config: Path, output: Path) -> list[str]:
    """The command that builds a site and fails at its first broken link or anchor."""
    return mkdocs(venv, "build", "--strict", "--config-file", str(config), "--site-dir", str(output))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", action="store_true", help="show it, and build after each change")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="the site's folder")
    parser.add_argument("--venv", type=Path, default=VENV, help="where MkDocs is, or is installed")
    options = parser.parse_args()
    venv = options.venv.resolve()
    try:
        install(venv)
    except subprocess.CalledProcessError as error:
        print(f"MkDocs cannot be installed: {error}\n{error.stderr or ''}", file=sys.stderr)
        return 1
    command = mkdocs(venv, "serve") if options.serve else build(venv, CONFIG, options.output.resolve())
    return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode


def environment() -> dict[str, str]:
    return os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # the theme's advertisement of its successor


if __name__ == "__main__":
    sys.exit(main())
