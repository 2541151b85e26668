"""The Markdown files name files, headings, modules and thresholds that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from document_reference import folders
from support.architecture import PAGE, bare_names, named_folders, rows

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "scripts/**/*.md", "requirements/*.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z]+:")
"""A link with a scheme, such as ``https:``: it is not looked up."""


def without_code(path: Path) -> str:
    """The page's text; ``# a comment`` in an example is no heading."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> Iterator[tuple[Path, str]]:
    """Each relative link as the file and the anchor (which may be empty) that it names."""
    for target in LINK.findall(without_code(path)):
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        yield (path.parent / name).resolve() if name else path, anchor


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found: set[str] = set()
    for heading in HEADING.findall(without_code(path)):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeats = sum(re.fullmatch(re.escape(anchor) + r"(-\d+)?", other) is not None for other in found)
        found.add(f"{anchor}-{repeats}" if repeats else anchor)
    return found


def broken_links(path: Path) -> list[str]:
    return [
        f"{target}#{anchor}"
        for target, anchor in links(path)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_readme_links_every_page_under_docs() -> None:
    linked = {target for target, _ in links(ROOT / "README.md")}
    pages = set((ROOT / "docs").glob("*.md"))
    assert len(pages) > 5
    assert {page.name for page in pages - linked} == set()


def test_the_architecture_page_names_modules_that_exist() -> None:
    """A name may leave out folders in front (``send/relay.py``), as the page does inside a folder's row."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {name.strip("/") for name in re.findall(r"`([\w/]+(?:\.py|/))`", text)}
    parts = [ROOT / folder for folder in ("serve_app", "deployments", "scripts")]
    there = [f"/{path.relative_to(ROOT)}" for part in parts for path in (part, *part.rglob("*"))]
    assert len(named) > 30
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in there)} == set()


def test_each_module_in_a_row_of_the_architecture_page_is_in_the_folder_that_is_named_last_before_it() -> (
    None
):
    named = rows(PAGE.read_text(encoding="utf-8"))
    assert sum(len(row.modules) for row in named) > 300
    assert [name for row in named for name in row.lost] == []


def test_each_module_in_a_row_of_the_architecture_page_has_words_of_its_own() -> None:
    assert bare_names(PAGE.read_text(encoding="utf-8")) == [], "leave out a file that needs no words"


def test_the_architecture_page_names_every_folder_with_modules() -> None:
    there = {ROOT / folder for folder in folders()}
    assert len(there) > 50
    missing = sorted(str(path.relative_to(ROOT)) for path in there - named_folders())
    assert missing == [], "a new folder gets a place in a row, with the files where a change in it starts"


@pytest.mark.parametrize(
    ("row", "lost", "bare"),
    [
        ("| `serve_app/cache/` | `keys.py` of answers; `decision/steps.py` in order. |", [], []),
        ("| `serve_app/dialects/` | Messages, `anthropic/`: `turns.py` of a chat. |", [], []),
        ("| `serve_app/media/` | `gateway/request/`: `images.py` by URL. |", [], []),
        ("| `serve_app/cache/` | `prices.py` of tokens. |", ["serve_app/cache/prices.py"], []),
        ("| `serve_app/usage/` | `serve_app/cache/`: `rows.py` of a day. |", ["serve_app/cache/rows.py"], []),
        ("| `serve_app/usages/` | In `store/`. |", ["serve_app/usages", "serve_app/usages/store"], []),
        (
            "| `serve_app/usage/` | `rows.py`, `prices.py` of tokens; `shown.py`. |",
            [],
            ["rows.py", "shown.py"],
        ),
    ],
)
def test_a_name_of_a_row_that_says_nothing_is_noticed(row: str, lost: list[str], bare: list[str]) -> None:
    page = f"## Who owns what\n| folder | |\n|---|---|\n{row}\n"
    (read,) = rows(page)
    assert (read.lost, bare_names(page)) == (lost, bare)


def test_the_architecture_page_is_one_page_that_a_person_can_read() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 80
    assert len(page) <= 24_000
    long = [line[:60] for line in FENCE.sub("", page).splitlines() if len(line) > 400]
    assert long == [], "a row says what its folder decides and where a change starts; it is no index"
    terms = re.findall(r"\*\*(\S.*?)\*\*", page.partition("## Glossary")[2])
    assert 10 < len(terms) <= 20
    assert {"Dialect", "Tier"} <= set(terms)


@pytest.mark.parametrize(("step", "values"), [("similarity", "least_cosine"), ("verifier", "thresholds")])
def test_the_caches_page_names_the_thresholds_of_the_shipped_verifier(step: str, values: str) -> None:
    folder = ROOT / "serve_app" / "cache" / "cross_encoder" / "trained" / "all-MiniLM-L6-v2"
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "cache.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {step} \| (.*) \|$", page, re.MULTILINE)
    assert row
    assert [float(number) for number in re.findall(r"\d\.\d+", row[1])] == list(card[values].values())


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## When a part dies", "when-a-part-dies"),
        ("## `models[].engine`", "modelsengine"),
        ("### N GPUs, a model of size Y", "n-gpus-a-model-of-size-y"),
        ("```sh\n# no heading\n```\n# One heading", "one-heading"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(heading + "\n", encoding="utf-8")
    assert anchors(page) == {anchor}


@pytest.mark.parametrize("target", ["missing.md", "page.md#nowhere", "#nowhere"])
def test_a_broken_link_is_noticed(target: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n[here]({target})\n", encoding="utf-8")
    assert len(broken_links(page)) == 1
