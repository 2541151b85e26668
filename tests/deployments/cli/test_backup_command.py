"""``promptly backup`` and ``promptly restore``: what is kept comes back, once, and nothing else changes."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support.accounts import managed
from support.feedback import a_request
from support.full_disk import fill, small_disk
from support.kept import NOW, OLDEST, Place, backup, new_places, restore

from deployments.cli.main import main
from deployments.feedback.store.sqlite import SqliteFeedback
from serve_app.accounts.exchange import Report
from serve_app.accounts.keys import KeyQuery, ManagedKey, changed_to, revoked
from serve_app.backup import FORMAT, MANIFEST
from serve_app.quotas.limits import Limit
from serve_app.settings import FeedbackSettings
from serve_app.usage import Counts, UsageRow
from serve_app.version import VERSION


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Place]:
    return new_places(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_everything_comes_back_on_another_machine_and_a_second_time_changes_nothing(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = next(places), next(places)
    await here.fill()
    archive = tmp_path / "all.promptly"
    assert backup(here, archive) == 0
    assert "cache: left out" in capsys.readouterr().out
    for _ in range(2):
        assert restore(there, archive) == 0
        assert await there.found() == await here.found()
    assert "audit: there is a log already" in capsys.readouterr().out
    assert main(["audit", "verify", str(there.folder / "accounts" / "audit.jsonl")]) == 0


async def test_a_backup_of_the_oldest_version_that_made_any_comes_back(
    places: Iterator[Place], capsys: pytest.CaptureFixture[str]
) -> None:
    there = next(places)
    for _ in range(2):
        assert restore(there, OLDEST) == 0
        assert "cache: start the application" in capsys.readouterr().out
        found = await there.found()
        assert found["keys"] == [("af52ca459018", 1, None), ("b53c76a87e76", 1, None)]
        assert found["refused"] == []  # that version kept none
        assert found["limits"] == [("tenant:acme", 9), ("tenant:b", 9)]
        assert found["usage"] == [(("acme",), 2, 0.5), (("b",), 2, 0.5)]
        assert found["feedback"] == [(name, "user:ann", "wrong") for name in ("acme", "b")]
        said, entries = found["responses"]
        assert (entries, said["conv_b"]) == (6, b'"0""1""2"')
        assert said["next_b"] == b'["asked resp_b"]["said resp_b"]["asked next_b"]["said next_b"]'
    assert main(["audit", "verify", str(there.folder / "accounts" / "audit.jsonl")]) == 0


async def test_a_backup_is_for_this_user_only_and_holds_no_secret_of_a_key(
    places: Iterator[Place], tmp_path: Path
) -> None:
    here = next(places)
    async with here.owner_of_accounts() as accounts:
        secret, key = managed("acme", NOW)
        await accounts.make_key(key)
    archive = tmp_path / "all.promptly"
    archive.write_text("an older one, which everybody may read")
    archive.chmod(0o644)
    assert backup(here, archive) == 0
    assert archive.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == [archive.name, here.folder.name]
    with tarfile.open(archive) as opened:
        assert {entry.mode for entry in opened} == {0o600}
    whole = gzip.decompress(archive.read_bytes())
    assert key.record.hash.encode() in whole
    assert secret.rpartition("-")[2].encode() not in whole


async def test_one_tenant_is_taken_out_and_put_in_without_the_others(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, of_one, of_all = next(places), next(places), next(places)
    await here.fill()
    one, everything = tmp_path / "acme.promptly", tmp_path / "all.promptly"
    assert backup(here, one, "--tenant", "acme") == 0
    assert backup(here, everything) == 0
    assert restore(of_one, one) == 0
    assert restore(of_all, everything, "--tenant", "acme") == 0
    for place in (of_one, of_all):
        found = await place.found()
        assert len(found["keys"]) == 1
        assert found["limits"] == [("tenant:acme", 9)]
        assert found["refused"] == [("acme", "eve")]
        assert found["usage"] == [(("acme",), 2, 0.5)]
        assert found["feedback"] == [("acme", "user:ann", "wrong")]
        said, entries = found["responses"]
        assert (entries, said["next_b"], said["conv_b"]) == (3, b"", b"")
        assert not (place.folder / "accounts" / "audit.jsonl").exists()
    assert b"resp_b" not in gzip.decompress(one.read_bytes())
    assert restore(of_one, one, "--tenant", "b") == 1
    assert "belongs to 'acme' only" in capsys.readouterr().err


async def test_what_happened_since_stays(places: Iterator[Place], tmp_path: Path) -> None:
    """A key that was revoked, a limit that was changed, usage that grew, a response that was deleted."""
    here, archive = next(places), tmp_path / "all.promptly"
    await here.fill()
    assert backup(here, archive) == 0
    async with here.owner_of_accounts() as accounts:
        key = (await accounts.keys(KeyQuery(tenant="acme"))).keys[0]
        await accounts.change_key(revoked(key, by="", now=NOW + 5))
        await accounts.put_limit(Limit("tenant:acme", tokens_per_day=5))
        await accounts.remove_limit("tenant:b")
        more = UsageRow("2026-09-21", "acme", "k", "", "m", Counts(requests=1))
        await accounts.exchange(Report(gateway="h", seq=1, usage=(more,)), NOW)
    async with here.owner_of_responses() as responses:
        await responses.delete("b", "next_b", NOW)
    before = await here.found()
    assert restore(here, archive) == 0
    assert await here.found() == before
    assert before["usage"][0][1] == 3


async def key_of_both(*both: Place) -> ManagedKey:
    """The same key at two places, as after a restore."""
    _, key = managed("acme", NOW)
    for place in both:
        async with place.owner_of_accounts() as accounts:
            await accounts.make_key(key)
    return key


async def test_a_key_that_was_changed_more_often_in_the_backup_is_taken(
    places: Iterator[Place], tmp_path: Path
) -> None:
    """An older copy elsewhere is brought up to date; a key that was revoked here is revoked there, too."""
    here, there, archive = next(places), next(places), tmp_path / "all.promptly"
    key = await key_of_both(here, there)
    async with here.owner_of_accounts() as accounts:
        await accounts.change_key(revoked(key, by="", now=NOW + 5))
    assert backup(here, archive) == 0
    assert restore(there, archive) == 0
    async with there.owner_of_accounts() as accounts:
        found = await accounts.key(key.record.id)
        assert found is not None
        assert found.revoked_at == NOW + 5
        changes = await accounts.exchange(Report(gateway="g", seq=1), NOW)
        assert changes.revoked == (key.record.id,)


async def test_a_revoked_key_does_not_work_again_by_a_copy_that_was_changed_more_often(
    places: Iterator[Place], tmp_path: Path
) -> None:
    here, there, archive = next(places), next(places), tmp_path / "all.promptly"
    key = await key_of_both(here, there)
    async with here.owner_of_accounts() as accounts:
        for number in range(3):
            key = changed_to(key, key.record, by="", now=NOW + number)
            await accounts.change_key(key)
    async with there.owner_of_accounts() as accounts:
        mine = await accounts.key(key.record.id)
        assert mine is not None
        await accounts.change_key(revoked(mine, by="", now=NOW + 5))
    assert backup(here, archive) == 0
    assert restore(there, archive) == 0
    async with there.owner_of_accounts() as accounts:
        found = await accounts.key(key.record.id)
        assert found is not None
        assert found.revoked_at == NOW + 5


async def test_a_backup_is_made_while_the_owners_run_and_a_restore_waits_for_their_end(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, archive = next(places), tmp_path / "all.promptly"
    await here.fill()
    before = await here.found()
    async with here.owner_of_responses():
        async with here.owner_of_accounts():
            assert backup(here, archive) == 0
        capsys.readouterr()
        assert restore(here, archive) == 1
    said = capsys.readouterr().err
    assert "responses.sqlite3 is in use" in said
    assert "stop the application first" in said
    assert await here.found() == before


async def test_a_part_that_cannot_be_written_keeps_the_others_from_being_written(
    places: Iterator[Place], tmp_path: Path
) -> None:
    here, there, archive = next(places), next(places), tmp_path / "all.promptly"
    await here.fill()
    assert backup(here, archive) == 0
    async with there.owner_of_feedback():
        assert restore(there, archive) == 1
    found = await there.found()
    assert (found["keys"], found["limits"], found["responses"][1]) == ([], [], 0)


def changed(archive: Path, manifest: Mapping[str, Any]) -> Path:
    """The same archive with other values in its manifest."""
    new = archive.with_name("changed.promptly")
    with tarfile.open(archive) as source, tarfile.open(new, "w:gz") as target:
        for entry in source:
            opened = source.extractfile(entry)
            assert opened is not None
            data = opened.read()
            if entry.name == MANIFEST:
                data = json.dumps({**json.loads(data), **manifest}).encode()
                entry.size = len(data)
            target.addfile(entry, io.BytesIO(data))
    return new


@pytest.fixture
async def kept(places: Iterator[Place], tmp_path: Path) -> tuple[Place, Path, list[dict[str, Any]]]:
    """A place, its backup, and what the manifest says of the members."""
    here, archive = next(places), tmp_path / "all.promptly"
    await here.fill()
    assert backup(here, archive) == 0
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile(MANIFEST)
        assert manifest is not None
        return here, archive, json.loads(manifest.read())["members"]


def of_schema_99(members: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [{**member, "schema": 99} if member["name"] == name else member for member in members]


async def test_a_backup_of_a_newer_version_is_refused_with_one_message_and_changes_nothing(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, archive, members = kept
    newer = of_schema_99(members, "feedback")
    cases: dict[str, dict[str, Any]] = {
        "its format is": {"format": FORMAT + 1},
        "its feedback are of schema 99": {"members": newer},
        "'dreams', which this version does not know": {"members": [{**members[0], "name": "dreams"}]},
    }
    for words, manifest in cases.items():
        there = next(places)
        assert restore(there, changed(archive, {"made_by": "9.9", **manifest})) == 1
        said = capsys.readouterr().err
        assert words in said
        assert "install 9.9 or newer" in said
        assert VERSION in said
        assert names(there.folder) == ["config.yaml"]


async def test_a_newer_part_is_refused_also_where_the_config_keeps_no_such_part(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise the rest would be restored, and the part be missing without a word."""
    _, archive, members = kept
    newer = of_schema_99(members, "responses")
    there = next(places)
    document = yaml.safe_load(there.config.read_text())
    document["applications"][0]["args"]["responses"] = {"enabled": False}
    there.config.write_text(yaml.safe_dump(document))
    capsys.readouterr()
    assert restore(there, changed(archive, {"members": newer})) == 1
    assert "its responses are of schema 99" in capsys.readouterr().err
    assert names(there.folder) == ["config.yaml"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"members": "none"}, "no manifest of a backup"),
        ({"tenant": 3}, "no manifest of a backup"),
        ({"made_at": 1e300}, "no manifest of a backup"),
        (
            {"members": [{"name": "a", "schema": 1, "bytes": -5, "sha256": "", "rows": 0}]},
            "no manifest of a backup",
        ),
    ],
)
async def test_a_manifest_that_is_none_is_refused(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    manifest: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert restore(next(places), changed(kept[1], manifest)) == 1
    assert words in capsys.readouterr().err


async def test_an_archive_that_was_changed_or_cut_off_restores_nothing(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, archive, members = kept
    short = [{**member, "bytes": member["bytes"] - 1} for member in members]
    twice = [members[0], members[0]]
    cut, no_archive = tmp_path / "cut", tmp_path / "words"
    cut.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    no_archive.write_text("hello")
    for broken in (
        changed(archive, {"members": short}),
        changed(archive, {"members": [{**members[0], "sha256": "0" * 64}]}),
        changed(archive, {"members": twice}),
        cut,
        no_archive,
        tmp_path / "absent",
    ):
        there = next(places)
        assert restore(there, broken) == 1, broken
        assert capsys.readouterr().err.count("\n") == 1
        assert names(there.folder) == ["config.yaml"]


async def test_damage_that_cannot_be_unpacked_and_a_part_that_is_a_link_are_one_message(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, archive, members = kept
    plain = bytearray(gzip.compress(gzip.decompress(archive.read_bytes()), 0))
    first = 10  # behind the header of gzip; each block begins with its length and that inverted
    second = first + 5 + int.from_bytes(plain[first + 1 : first + 3], "little")
    plain[second + 3] ^= 1
    damaged, linked = tmp_path / "damaged", tmp_path / "linked"
    damaged.write_bytes(plain)
    with tarfile.open(archive) as source, tarfile.open(linked, "w:gz") as target:
        target.addfile(source.getmember(MANIFEST), source.extractfile(MANIFEST))
        link = tarfile.TarInfo(members[0]["name"])
        link.type, link.linkname = tarfile.SYMTYPE, link.name
        target.addfile(link)
    capsys.readouterr()
    for broken in (damaged, linked):
        there = next(places)
        assert restore(there, broken) == 1
        assert capsys.readouterr().err.count("\n") == 1
        assert names(there.folder) == ["config.yaml"]


async def test_a_backup_replaces_neither_a_device_nor_a_link(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, device, link = next(places), tmp_path / "device", tmp_path / "link"
    await here.fill()
    os.mkfifo(device)
    assert backup(here, device) == 1
    assert "is no file" in capsys.readouterr().err
    assert device.is_fifo()
    link.symlink_to(tmp_path / "elsewhere")
    assert backup(here, link) == 0
    assert link.is_symlink()
    assert (tmp_path / "elsewhere").is_file()
    link.unlink()
    link.symlink_to(link)
    assert backup(here, link) == 1
    assert capsys.readouterr().err.count("\n") == 1


async def test_a_backup_shares_no_file_with_another_one_into_the_same_archive(
    places: Iterator[Place], tmp_path: Path
) -> None:
    here, archive = next(places), tmp_path / "all.promptly"
    await here.fill()
    others = tmp_path / "all.promptly.new"
    others.write_text("what the other one has written so far")
    assert backup(here, archive) == 0
    assert others.read_text() == "what the other one has written so far"
    assert restore(next(places), archive) == 0


@pytest.mark.parametrize("free", [360_000, 600_000, 1_200_000, 3_200_000, 7_000_000])
async def test_on_a_disk_that_gets_full_all_parts_are_restored_or_none(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str], free: int
) -> None:
    here, archive = next(places), tmp_path / "all.promptly"
    await here.fill()
    with closing(sqlite3.connect(here.folder / "responses" / "responses.sqlite3")) as opened:
        opened.execute("UPDATE items SET item=?", (b'"' + b"x" * 100_000 + b'"',))
        opened.commit()
    assert backup(here, archive) == 0
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        there = Place(disk / "place")
        fill(disk, free)
        status = restore(there, archive)
        assert (status, capsys.readouterr().err.count("\n")) in ((0, 0), (1, 1))
        assert (status == 0) is (free == 7_000_000)
        (disk / "other-file").unlink()
        found = await there.found()
        rows = (found["keys"], found["responses"][1], found["feedback"])
        assert all(rows) if status == 0 else not any(rows)
        assert (there.folder / "accounts" / "audit.jsonl").exists() is (status == 0)
        assert restore(there, archive) == 0


async def test_a_dry_run_says_what_is_in_it_and_writes_nothing(
    kept: tuple[Place, Path, list[dict[str, Any]]],
    places: Iterator[Place],
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = next(places)
    capsys.readouterr()
    assert restore(there, kept[1], "--dry-run") == 0
    said = capsys.readouterr().out
    assert "of everybody; it is whole" in said
    assert "accounts: 8 rows" in said
    assert names(there.folder) == ["config.yaml"]


def test_nothing_to_back_up_is_said_and_leaves_no_file(
    places: Iterator[Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "all.promptly"
    assert backup(next(places), archive) == 1
    assert "nothing to back up" in capsys.readouterr().err
    assert backup(next(places), tmp_path / "absent" / "all.promptly") == 1
    assert not archive.exists()


def test_a_settings_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", str(tmp_path / "a"), "--config", str(tmp_path / "absent.yaml")]) == 1
    assert "absent.yaml" in capsys.readouterr().err


async def test_the_usual_folders_are_taken_without_a_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "here"))
    store = SqliteFeedback(tmp_path / "here" / "feedback", FeedbackSettings(min_free_disk_bytes=0), None)
    await store.report([a_request(1)])
    await store.close()
    assert main(["backup", str(tmp_path / "all")]) == 0
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "there"))
    assert main(["restore", str(tmp_path / "all")]) == 0
    assert "feedback: 1 rows" in capsys.readouterr().out
    with sqlite3.connect(tmp_path / "there" / "feedback" / "feedback.sqlite3") as opened:
        assert opened.execute("SELECT id FROM requests").fetchall() == [(a_request(1).request_id,)]
    opened.close()


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    from serve_app.backup import Manifest, Member, read_manifest

    manifest = Manifest(made_at=NOW, tenant="a", members=(Member("cache", 1, 2, "ff", 3),))
    assert read_manifest(msgspec.json.encode(manifest), {"cache": 1}) == manifest
