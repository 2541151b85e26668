"""What kubectl and Helm send as protobuf: the namespaces and secrets that they make by themselves."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
VARINT, BYTES = 0, 2
TEXTS = {1: "name", 3: "namespace"}
MAPS = {11: "labels", 12: "annotations"}
"""Fields of ObjectMeta."""


def read(body: bytes) -> dict[str, Any]:
    envelope = dict(_fields(body.removeprefix(MAGIC)))
    version, kind = (text.decode() for _, text in _fields(envelope[1]))
    found: dict[str, Any] = {"apiVersion": version, "kind": kind}
    for number, value in _fields(envelope[2]):
        if number == 1:
            found["metadata"] = _metadata(value)
        elif kind == "Secret" and number == 2:
            name, data = _entry(value)
            found.setdefault("data", {})[name] = base64.b64encode(data).decode()
        elif kind == "Secret" and number == 3:
            found["type"] = value.decode()
    return found


def _metadata(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(message):
        if number in TEXTS and value:
            found[TEXTS[number]] = value.decode()
        elif number in MAPS:
            name, text = _entry(value)
            found.setdefault(MAPS[number], {})[name] = text.decode()
    return found


def _entry(message: bytes) -> tuple[str, bytes]:
    """Of a map."""
    pair = dict(_fields(message))
    return pair[1].decode(), pair.get(2, b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Texts and messages within, by number; a field that is a number is left out."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == BYTES:
            yield tag >> 3, message[at : at + value]
            at += value
        elif tag & 7 != VARINT:
            raise ValueError(f"field {tag >> 3} is of a type that no namespace and no secret has")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
