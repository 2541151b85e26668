"""The console's files, as they are in the project: vendored code, colours, what the pages may load."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from serve_app import console

FOLDER = Path(__file__).parents[2] / "deployments" / "gateway" / "console_files"
VENDOR = FOLDER / "vendor"
AA_TEXT, AA_GRAPHIC = 4.5, 3.0
TEXT_PAIRS = [
    *((ink, ground) for ink in ("text", "muted") for ground in ("ground", "surface", "raised")),
    ("text", "accent-soft"),
    ("accent", "surface"),
    ("accent", "ground"),
    ("accent", "accent-soft"),
    ("on-accent", "accent"),
    *((kind, f"{kind}-soft") for kind in ("good", "near", "bad")),
    *((kind, "surface") for kind in ("good", "bad")),
    ("surface", "text"),
]
GRAPHIC_PAIRS = [
    ("control", "surface"),
    *((f"chart-{number}", "surface") for number in (1, 2, 3, 4)),
    *((f"step-{name}", "surface") for name in ("own", "cache", "queue", "route", "engine", "decode")),
]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.*")), ids=lambda path: path.name)
def test_signs_are_drawn_because_not_every_machine_has_a_font_with_emoji(path: Path) -> None:
    assert not re.findall(r"[\U0001F000-\U0001FAFF]", path.read_text(encoding="utf-8"))


def test_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    named = {name: each["sha256"] for package in manifest for name, each in package["files"].items()}
    there = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.suffix in {".js", ".css"}
    }
    assert named == there
    for package in manifest:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        folders = {(VENDOR / name).parent for name in package["files"]}
        assert all(any(folder.glob("LICENSE*")) for folder in folders)


def test_the_page_of_licences_names_every_vendored_package() -> None:
    page = (FOLDER.parents[2] / "docs" / "licences.md").read_text(encoding="utf-8")
    for package in json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8")):
        assert f"| {package['package']} | {package['version']} |" in page


def test_every_file_of_the_console_is_served_and_every_served_one_is_there() -> None:
    named = {part for _, parts in console.FILES.values() for part in parts} | {console.PAGE}
    there = {
        str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.suffix in {".js", ".css", ".html"}
    }
    assert named == there


def test_the_page_has_no_inline_script_or_style_and_names_no_other_host() -> None:
    page = (FOLDER / console.PAGE).read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.search(r"<style|\sstyle=|\son\w+=|javascript:", page) is None
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", page)
    assert all(address.startswith(("{{root}}/", "data:image/svg+xml,")) for address in addresses)


def test_the_policy_allows_this_origin_only() -> None:
    directives = dict(part.split(" ", 1) for part in console.POLICY.split("; "))
    assert directives["default-src"] == directives["frame-ancestors"] == directives["form-action"] == "'none'"
    assert directives["script-src"] == directives["connect-src"] == "'self'"
    assert "unsafe" not in console.POLICY
    assert "http" not in console.POLICY


@pytest.mark.parametrize("script", console.OWN_SCRIPTS)
def test_text_becomes_html_only_through_the_purifier(script: str) -> None:
    code = (FOLDER / script).read_text(encoding="utf-8")
    assert (
        re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code)
        is None
    )
    assert "cookie" not in code


def palettes() -> dict[str, dict[str, str]]:
    """The colours of each rule that sets them."""
    style = (FOLDER / "console.css").read_text(encoding="utf-8")
    found = {}
    for selector, body in re.findall(r"([^{}]*:root[^{}]*)\{([^{}]*--ground[^{}]*)\}", style):
        found[selector.strip().splitlines()[-1]] = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
    return found


def contrast(one: str, other: str) -> float:
    """The ratio that WCAG 2.2 defines."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_have_the_contrast_of_wcag_aa_in_every_theme() -> None:
    themes = palettes()
    assert len(themes) == 3
    for theme, colours in themes.items():
        for least, pairs in ((AA_TEXT, TEXT_PAIRS), (AA_GRAPHIC, GRAPHIC_PAIRS)):
            low = {
                pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
                for pair in pairs
                if contrast(colours[pair[0]], colours[pair[1]]) < least
            }
            assert low == {}, theme


def test_dark_colours_are_the_same_by_choice_and_by_the_system() -> None:
    chosen, of_system = list(palettes().values())[1:]
    assert chosen == of_system


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("Text/HTML;q=0.5", True),
        ("*/*", False),
        ("application/json", False),
        ("", False),
        (None, False),
    ],
)
def test_only_who_names_html_gets_the_page(accept: str | None, expected: bool) -> None:
    assert console.wants_page(accept) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.8", True),
        ("gzip;q=0", False),
        ("br", False),
        (None, False),
    ],
)
def test_gzip_is_sent_to_who_takes_it(given: str | None, expected: bool) -> None:
    assert console.takes_gzip(given) is expected
