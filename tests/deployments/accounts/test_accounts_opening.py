"""An owner that cannot read all of its file holds nothing of it, so that a later try can open it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psutil
import pytest
from support.accounts import open_accounts

from deployments.accounts.store.schema import FILE
from serve_app.accounts.keys import AccountsError


def held(path: Path) -> list[str]:
    """What this process has open of a file, its journal included."""
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(path))]


async def test_a_file_whose_use_cannot_be_read_is_closed_again(tmp_path: Path) -> None:
    whole = await open_accounts(tmp_path)
    assert held(tmp_path / FILE)
    await whole.close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("DROP TABLE used")
        db.execute("CREATE TABLE used(other)")
    db.close()
    torn = await open_accounts(tmp_path)
    try:
        with pytest.raises(AccountsError, match="no such column"):
            torn.store  # noqa: B018  # it is the property that raises
        assert held(tmp_path / FILE) == []
    finally:
        await torn.close()
