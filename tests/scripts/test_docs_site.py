"""The site's pages exist, and links of the checkout become links of the site.

That every link leads somewhere is for MkDocs' strict mode (`make docs`), which is not installed here, and for
tests/test_docs_links.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_site import BESIDE, on_page_markdown, site_text, wanted

ROOT = Path(__file__).parents[2]


def test_every_page_of_the_menu_exists() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = re.findall(r": (\S+\.md)$", menu, re.MULTILINE)
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
