"""The lock files, the bill of materials and the list of licences say the same as pyproject.toml."""

from __future__ import annotations

import json
import re
from pathlib import Path

import lock
import pytest
import sbom
from ray.serve._private.haproxy import get_haproxy_binary

from serve_app.front_door import binary

ENTRY = "a-package==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


@pytest.mark.parametrize("which", lock.SETS)
def test_the_lock_is_of_this_pyproject(which: str) -> None:
    text = lock.lock_path(which).read_text(encoding="utf-8")
    assert text.startswith(lock.head(which)), "run scripts/lock.py and scripts/sbom.py"


@pytest.mark.parametrize("which", lock.SETS)
def test_every_package_has_a_hash_and_none_says_where_it_comes_from(which: str) -> None:
    text = lock.lock_path(which).read_text(encoding="utf-8").removeprefix(lock.head(which))
    blocks = lock.blocks(text)
    assert len(blocks) > 100
    for block in blocks:
        assert re.fullmatch(r"[^\s=]+==[^\s=+]+( ;[^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", block), (
            block
        )


@pytest.mark.parametrize("which", lock.SETS)
def test_what_each_process_of_serve_would_import_for_nothing_is_not_installed(which: str) -> None:
    """Serve imports pandas where it finds it (docs/benchmarks.md says what that costs)."""
    assert "\npandas==" not in lock.lock_path(which).read_text(encoding="utf-8")


def test_a_build_of_a_version_is_kept_apart_without_its_hash() -> None:
    hashed, unhashed = lock.split(ENTRY + ENTRY.replace("a-package==1.0", "torch==2.0+cpu"))
    assert (hashed, unhashed) == (ENTRY, "torch==2.0+cpu\n")


def test_what_is_no_entry_is_not_locked() -> None:
    with pytest.raises(lock.LockError, match="no entry"):
        lock.split(ENTRY + "a-package @ file:///somewhere\n")


@pytest.mark.parametrize("which", lock.SETS)
def test_the_bill_of_materials_is_of_the_lock(which: str) -> None:
    bill = json.loads((lock.FOLDER / f"{which}.cdx.json").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    listed = {(each["name"], each["version"]) for each in bill["components"] if each["type"] == "library"}
    assert listed == {(sbom.canonical(name), version) for name, version in lock.packages(which)}
    assert {each["name"] for each in bill["components"]} >= {model.repo for model in sbom.PREPARED}


def test_the_page_of_licences_names_everything_that_is_locked() -> None:
    page = sbom.PAGE.read_text(encoding="utf-8")
    for which in lock.SETS:
        for name, version in lock.packages(which):
            assert f"| {sbom.canonical(name)} | {version} |" in page
    assert "://" not in page


def test_the_page_of_licences_says_what_a_start_does_to_haproxy() -> None:
    program = Path(get_haproxy_binary()).read_bytes()
    own = binary.with_json_errors(program)
    assert own is not None
    assert own != program
    code = Path(binary.__file__).relative_to(lock.ROOT).as_posix()
    page = sbom.PAGE.read_text(encoding="utf-8")
    assert page.startswith(sbom.HEAD), "run scripts/sbom.py"
    (about,) = [" ".join(part.split()) for part in page.split("\n## ") if part.startswith("HAProxy\n")]
    assert "**with its error texts changed**" in about
    assert f"`{code}`" in about
    security = " ".join((lock.ROOT / "docs" / "security.md").read_text(encoding="utf-8").split())
    assert "makes a copy of it on your machine with its error texts changed" in security


@pytest.mark.parametrize(
    ("expression", "text", "classifiers", "expected"),
    [
        ("MIT", "see file", ["License :: OSI Approved :: BSD License"], "MIT"),
        (None, "Apache-2.0", [], "Apache-2.0"),
        (
            None,
            "UNKNOWN",
            ["License :: OSI Approved", "License :: OSI Approved :: BSD License"],
            "BSD License",
        ),
        (None, "Copyright\n" * 50, ["License :: OSI Approved :: MIT License"], "MIT License"),
        (None, "MIT License\n\nCopyright", [], "MIT License"),
        (None, None, [], sbom.NOT_SAID),
    ],
)
def test_a_licence_is_read_from_what_there_is(
    expression: str | None, text: str | None, classifiers: list[str], expected: str
) -> None:
    assert sbom.licence_of(expression, text, classifiers) == expected


@pytest.mark.parametrize(
    ("licence", "section"),
    [
        ("GPLv2", "GPL and other copyleft"),
        ("LGPL-2.1-only", "GPL and other copyleft"),
        ("GNU Affero General Public License v3", "GPL and other copyleft"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "GPL and other copyleft"),
        ("LicenseRef-NVIDIA-Proprietary", "Proprietary"),
        ("Intel End User License Agreement for Developer Tools", "Proprietary"),
        (sbom.NOT_SAID, "Packages whose metadata says nothing"),
    ],
)
def test_what_asks_for_more_than_a_notice_is_listed_apart(licence: str, section: str) -> None:
    page = sbom.page({"cpu": [sbom.Package("some-package", "1.0", licence)]})
    (found,) = [part for part in page.split("\n## ") if "- `some-package` 1.0" in part]
    assert found.startswith(section)


def test_what_does_not_import_beside_a_cpu_torch_is_left_out_of_its_set_alone() -> None:
    names = {which: {name for name, _ in lock.packages(which)} for which in lock.SETS}
    assert names["cpu"].isdisjoint(lock.LEFT_OUT["cpu"])
    assert names["gpu"].issuperset(lock.LEFT_OUT["cpu"])
    assert (
        lock.without(ENTRY + "torchvision==1.0 \\\n    --hash=sha256:0\n", ("torchvision",)) == ENTRY.strip()
    )


def test_what_installs_the_sets_is_locked_too() -> None:
    hashed = lock.lock_path(lock.INSTALLER).read_text(encoding="utf-8").removeprefix(lock.INSTALLER_HEAD)
    assert hashed.startswith(f"{lock.UV} \\\n    --hash=sha256:")
