"""The trained cross-encoders that ship: for each embedder a folder with card, graph and tokenizer."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from serve_app.cache.cross_encoder.card import Card
from serve_app.cache.cross_encoder.model import CrossEncoder

CARD_FILE = "card.json"


def trained_folder() -> Path:
    return Path(str(files("serve_app.cache.cross_encoder"))) / "trained"


def folder_of(embedder: str, folder: Path | None = None) -> Path:
    """The folder for an embedder: ``sentence-transformers/all-MiniLM-L6-v2`` and a prepared folder of it have
    the same one."""
    return (folder or trained_folder()) / embedder.rstrip("/").rpartition("/")[2].rpartition("--")[2]


def find_cross_encoder(embedder: str, folder: Path | None = None) -> CrossEncoder | None:
    """The cross-encoder calibrated with ``embedder`` (a hub id, or a folder of that name), or ``None``.

    Raises:
        OSError: a file is missing beside the card.
        ValueError: the card cannot be read, or the graph cannot be run.
    """
    mine = folder_of(embedder, folder)
    if not (mine / CARD_FILE).is_file():
        return None
    try:
        card = msgspec.json.decode((mine / CARD_FILE).read_bytes(), type=Card)
        return CrossEncoder(card, mine)
    except Exception as error:  # onnxruntime and tokenizers have no common error of their own
        raise ValueError(f"cross-encoder {mine}: {error}") from error


def write_card(card: Card, folder: Path) -> Path:
    path = folder / CARD_FILE
    path.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    return path
