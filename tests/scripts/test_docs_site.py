"""The site is built as `make docs` builds it, and links of the checkout become links of the site.

MkDocs is fetched into a virtual environment that this file's tests share: they are skipped only where pip
reaches no index. What MkDocs needs and the tests' environment has comes from there by a .pth file, which
halves the time.
"""

from __future__ import annotations

import json
import re
import site as python_site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from docs_site import BESIDE, CONFIG, build, environment, install, on_page_markdown, site_text, wanted

ROOT = Path(__file__).parents[2]
UNREACHED = re.compile(r"from versions: none\)|after connection broken by|Max retries exceeded")
"""What pip says where it finds no index. A version that an index does not have is another message."""
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mkdocs")
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    packages.mkdir(parents=True)
    (packages / "dependencies.pth").write_text("\n".join(python_site.getsitepackages()), encoding="utf-8")
    try:
        install(folder, PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"MkDocs was not fetched within {PATIENCE_S:g} s")
    except subprocess.CalledProcessError as error:
        if UNREACHED.search(error.stderr or ""):
            pytest.skip("pip reaches no index of packages, so there is no MkDocs")
        raise AssertionError(error.stderr) from error
    return folder


@pytest.fixture(scope="module")
def site(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning as an error."""
    folder = tmp_path_factory.mktemp("site")
    done = run(build(venv, CONFIG, folder))
    assert done.returncode == 0, done.stderr
    return folder


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def pages_of_the_menu() -> list[str]:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r": (\S+\.md)$", menu, re.MULTILINE)


def test_the_site_has_every_page_of_the_menu_and_finds_it(site: Path) -> None:
    """The search index has each page's title, and a text that is in one page only."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"] if entry["text"].strip()}
    for page in pages_of_the_menu():
        name = page.replace(".md", ".html")
        assert "</html>" in (site / name).read_text(encoding="utf-8"), name
        assert name in found, f"{name} cannot be searched"
    texts = " ".join(
        entry["text"] for entry in index["docs"] if entry["location"].startswith("settings.html")
    )
    assert "max_queue_wait_s" in texts


def test_a_broken_link_or_anchor_ends_the_build(venv: Path, tmp_path: Path) -> None:
    """A small site with the settings of the real one. The theme is left out: it takes most of the time."""
    (tmp_path / "docs").mkdir()
    text = "# Here\n\n[away](gone.md), [below](#nowhere), [here](#here)\n"
    (tmp_path / "docs" / "index.md").write_text(text, encoding="utf-8")
    own = {"INHERIT": str(CONFIG), "docs_dir": "docs", "nav": None, "hooks": [], "theme": None, "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(own), encoding="utf-8")
    done = run(build(venv, tmp_path / "mkdocs.yml", tmp_path / "site"))
    assert done.returncode == 1, done.stderr
    assert "gone.md" in done.stderr
    assert "#nowhere" in done.stderr
    assert "#here" not in done.stderr


def test_every_page_of_the_menu_exists() -> None:
    pages = pages_of_the_menu()
    assert len(pages) > 15
    assert len(set(pages)) == len(pages)
    there = {page.name for page in (ROOT / "docs").glob("*.md")} | set(BESIDE.values())
    assert set(pages) <= there
    assert all((ROOT / name).is_file() for name in BESIDE)


@pytest.mark.parametrize(
    ("folder", "given", "shown"),
    [
        ("", "[Engines](docs/engines.md#sizes)", "[Engines](engines.md#sizes)"),
        ("", "![drawn](docs/images/a.svg)", "![drawn](images/a.svg)"),
        ("", "[log](CHANGELOG.md)", "[log](CHANGELOG.md)"),
        ("docs", "[cache](cache.md)", "[cache](cache.md)"),
        ("docs", "[log](../CHANGELOG.md#unreleased)", "[log](CHANGELOG.md#unreleased)"),
        ("docs", "[start](../README.md)", "[start](index.md)"),
        ("docs", "[`rules.yml`](../config/observability/rules.yml)", "`rules.yml`"),
        ("docs", "[here](#here) and [there](https://there.example)", None),
        ("docs", "```sh\n[a](../config/b)\n```", None),
    ],
)
def test_a_link_of_the_checkout_becomes_one_of_the_site(folder: str, given: str, shown: str | None) -> None:
    assert site_text(given, folder) == (given if shown is None else shown)


def test_pages_that_were_made_for_the_site_are_not_changed_again() -> None:
    class File:
        src_uri = "index.md"

    class Page:
        file = File

    assert on_page_markdown("[a](engines.md)", Page) == "[a](engines.md)"


def test_mkdocs_is_named_in_one_place() -> None:
    assert [each.partition(">")[0] for each in wanted()] == ["mkdocs-material"]
