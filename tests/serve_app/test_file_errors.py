"""Messages about files that cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.settings import load_file


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EISDIR, os.strerror(errno.EISDIR), "/x"), "it is a directory; expected a file"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/x"), "Permission denied"),
        (OSError("the disk took a part"), "the disk took a part"),
        (ValueError("line 3: no JSON"), "line 3: no JSON"),
    ],
)
def test_an_error_is_told_without_its_number_and_the_path_once_more(error: Exception, said: str) -> None:
    assert said_of(error) == said


def test_a_config_that_is_a_directory_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as said:
        load_file(tmp_path)
    assert str(said.value) == f"{tmp_path}: it is a directory; expected a file"
