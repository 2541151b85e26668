"""The files of the audit log: durable lines, crashes, rotation, and the commands that read them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest
from support.killed_owner import acknowledged_when_killed

from deployments.accounts.audit_log import FILE, HEAD_FILE, TORN_FILE, AuditLog, files_of, lines_of
from deployments.cli import audit as command
from deployments.cli.main import main
from serve_app.audit import AuditEvent, Head, verify

NOW = 1_790_000_000.0


def event(number: int = 0, **changed: str) -> AuditEvent:
    known = {"actor": "key:0123456789ab", "action": "cache.purge", "outcome": "done", **changed}
    return AuditEvent(at=NOW + number, target=f"t{number}", request_id=f"r{number}", **known)


def a_log(folder: Path, lines: int = 0, max_bytes: int = 1_000_000, max_files: int = 4) -> AuditLog:
    log = AuditLog(folder, max_bytes, max_files, NOW)
    for number in range(lines):
        log.write(event(number))
    return log


def checked(folder: Path) -> str | None:
    head = msgspec.json.decode((folder / HEAD_FILE).read_bytes(), type=Head)
    return verify(lines_of(files_of(folder)), head).problem


def actions(folder: Path) -> list[str]:
    return [json.loads(raw)["action"] for raw in lines_of(files_of(folder))]


def test_a_log_is_whole_after_every_line(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for number in range(3):
        assert log.write(event(number)).seq == number + 1
        assert checked(tmp_path) is None
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_an_event_that_is_sent_twice_has_one_line(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.write(event(1)) == log.write(event(1))
    assert log.write(event(1, outcome="begun")).seq == 2


def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    a_log(tmp_path, 3).close()
    assert a_log(tmp_path).write(event(9)).seq == 4
    assert checked(tmp_path) is None


def test_a_kill_between_line_and_head_loses_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path, 2)
    before = (tmp_path / HEAD_FILE).read_bytes()
    log.write(event(2))
    (tmp_path / HEAD_FILE).write_bytes(before)
    assert a_log(tmp_path).write(event(3)).seq == 4
    assert (checked(tmp_path), actions(tmp_path)) == (None, ["cache.purge"] * 4)


def test_a_line_that_was_cut_by_a_kill_is_kept_apart(tmp_path: Path) -> None:
    a_log(tmp_path, 2).close()
    with (tmp_path / FILE).open("ab") as opened:
        opened.write(b'{"seq":3,"ti')
    a_log(tmp_path).write(event(3))
    assert checked(tmp_path) is None
    assert actions(tmp_path) == ["cache.purge", "cache.purge", "audit.damaged", "cache.purge"]
    assert (tmp_path / TORN_FILE).read_bytes() == b'{"seq":3,"ti'


def cut_the_last(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def change_one(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"t1"', b'"tX"'), *lines[2:]]


@pytest.mark.parametrize("tamper", [cut_the_last, change_one])
def test_a_log_that_was_tampered_with_says_so_and_never_becomes_whole(
    tmp_path: Path, tamper: Callable[[list[bytes]], list[bytes]]
) -> None:
    a_log(tmp_path, 3).close()
    path = tmp_path / FILE
    path.write_bytes(b"".join(tamper(path.read_bytes().splitlines(keepends=True))))
    log = a_log(tmp_path)
    log.write(event(9))
    assert "audit.damaged" in actions(tmp_path)
    assert checked(tmp_path) is not None


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = a_log(tmp_path, 1), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    with pytest.raises(OSError, match="part of the line"):
        log.write(event(5))
    monkeypatch.undo()
    assert log.write(event(6)).seq == 2
    assert checked(tmp_path) is None


def test_the_chain_goes_on_over_files_and_says_which_were_removed(tmp_path: Path) -> None:
    a_log(tmp_path, 60, max_bytes=3000, max_files=3)
    files = files_of(tmp_path)
    assert len(files) == 3
    head = msgspec.json.decode((tmp_path / HEAD_FILE).read_bytes(), type=Head)
    report = verify(lines_of(files), head)
    assert report.problem is None
    assert report.first > 1
    assert "audit.expired" in actions(tmp_path)


def test_a_new_file_that_cannot_be_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path, 12, max_bytes=4000, max_files=9)
    while log.write(event(log.head.seq)).seq and (tmp_path / FILE).stat().st_size < 4000:
        pass

    def no_room(*_: object) -> int:
        raise OSError("no file descriptor is free")

    monkeypatch.setattr(os, "open", no_room)
    with pytest.raises(OSError, match="descriptor"):
        log.write(event(500))
    monkeypatch.undo()
    log.write(event(501))
    assert checked(tmp_path) is None


def test_newest_lines_come_first_from_all_files(tmp_path: Path) -> None:
    log = a_log(tmp_path, 30, max_bytes=3000, max_files=9)
    newest = [line.target for line in log.newest(20) if line.action == "cache.purge"]
    assert newest[:3] == ["t29", "t28", "t27"]
    assert len(log.newest(20)) == 20


def write_until_killed(folder: str, told: Connection) -> None:
    log = a_log(Path(folder))
    for number in range(1_000_000):
        told.send(log.write(event(number)).seq)


def test_a_killed_owner_loses_no_line_that_it_has_acknowledged(tmp_path: Path) -> None:
    acknowledged = acknowledged_when_killed(write_until_killed, tmp_path)
    log = a_log(tmp_path)
    assert log.head.seq >= acknowledged
    log.write(event(1_000_001))
    assert checked(tmp_path) is None


# ---- the commands ----


def test_the_command_says_that_a_log_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_log(tmp_path, 3)
    assert main(["audit", "verify", str(tmp_path / FILE)]) == 0
    assert "3 lines, the chain is whole" in capsys.readouterr().out


def test_the_command_names_the_line_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_log(tmp_path, 3)
    path = tmp_path / FILE
    path.write_bytes(b"".join(change_one(path.read_bytes().splitlines(keepends=True))))
    assert main(["audit", "verify", str(path)]) == 1
    assert "line 2 (number 2) was changed" in capsys.readouterr().err


def test_a_head_that_was_kept_elsewhere_finds_a_log_that_was_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = a_log(tmp_path / "a", 3).head
    a_log(tmp_path / "b").write(event(7))
    path = str(tmp_path / "b" / FILE)
    assert main(["audit", "verify", path]) == 0
    assert main(["audit", "verify", path, "--head", f"{kept.seq}:{kept.hash}"]) == 1
    assert "2 were removed" in capsys.readouterr().err
    assert main(["audit", "verify", path, "--head", "x"]) == 1


def test_a_missing_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", str(tmp_path / FILE)]) == 1
    assert main(["audit", "show", str(tmp_path / FILE)]) == 1
    assert FILE in capsys.readouterr().err


def test_lines_are_shown_by_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = a_log(tmp_path, 2)
    log.write(event(2, action="keys.create", actor="admin-token"))
    log.write(event(3, action="keys.create"))
    path = str(tmp_path / FILE)
    assert main(["audit", "show", path, "--action", "keys.create"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == [
        "admin-token",
        "key:0123456789ab",
    ]
    assert main(["audit", "show", path, "--last", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seq"] == 4


def test_csv_of_the_log_holds_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_log(tmp_path).write(event(1, actor="=1+1"))
    assert main(["audit", "show", str(tmp_path / FILE), "--csv"]) == 0
    head, row = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert head == list(command.FIELDS)
    assert row[head.index("actor")] == "'=1+1"
