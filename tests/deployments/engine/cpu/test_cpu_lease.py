"""CPUs that processes take for themselves, and what becomes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.engine.cpu.lease import by_core, lease_cpus, one_of_each_core

ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from pathlib import Path
from deployments.engine.cpu.lease import lease_cpus
lease = lease_cpus([0, 1, 2], 2, Path(sys.argv[1]))
print(*lease.cpus, flush=True)
sys.stdin.read()
"""


def test_nobody_gets_a_cpu_that_is_taken(tmp_path: Path) -> None:
    first, second = lease_cpus([0, 1, 2], 2, tmp_path), lease_cpus([0, 1, 2], 2, tmp_path)
    assert (first.cpus, second.cpus) == ((0, 1), (2,))
    assert lease_cpus([0, 1, 2], 1, tmp_path).cpus == ()
    first.give_back()
    assert lease_cpus([0, 1, 2], 1, tmp_path).cpus == (0,)
    second.give_back()


def test_a_process_that_is_killed_gives_its_cpus_back(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().split() == ["0", "1"]
        assert lease_cpus([0, 1, 2], 3, tmp_path).cpus == (2,)
        holder.kill()
    lease = lease_cpus([0, 1], 2, tmp_path)
    assert lease.cpus == (0, 1)
    lease.give_back()


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Three cores of two threads each, numbered in two ways."""
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 6: "6-7", 7: "6-7"}.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    return tmp_path


def test_a_core_is_taken_whole_before_the_next_one(topology: Path) -> None:
    assert by_core({7, 6, 5, 4, 1, 0}, topology) == [0, 4, 1, 5, 6, 7]


def test_one_thread_of_each_core_computes(topology: Path) -> None:
    assert one_of_each_core({0, 4, 5, 6, 7}, topology) == (0, 5, 6)


def test_where_the_kernel_says_nothing_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert by_core({3, 1, 2}, tmp_path) == [1, 2, 3]
    assert one_of_each_core({3, 1, 2}, tmp_path) == (1, 2, 3)


def test_what_was_taken_before_an_error_is_given_back(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    with pytest.raises(IsADirectoryError):
        lease_cpus([0, 1], 2, tmp_path)
    lease = lease_cpus([0], 1, tmp_path)
    assert lease.cpus == (0,)
    lease.give_back()


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        lease_cpus([0], 1, tmp_path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(PermissionError, match="another user"):
        lease_cpus([0], 1, folder)
