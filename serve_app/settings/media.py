"""Settings of images and recordings in requests."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from serve_app.settings.base import Frozen

HOST = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:]+")


class MediaSettings(Frozen):
    """Images that a chat names by URL or holds as `data:` URLs, and uploaded recordings. Bounds per
    gateway."""

    allowed_domains: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Hosts whose images the gateway fetches (`images.example.com`, `*.example.com`, `*`), "
        "from public addresses only; engines get them as `data:` URLs. Default: none; a URL is left to the "
        "member: a managed engine refuses it without `engine.allowed_media_domains`, a vLLM of your own "
        "fetches it unless it was started with `--allowed-media-domains`.",
    )
    max_images: int = Field(default=32, ge=1, description="Images of one request.")
    max_image_bytes: int = Field(default=20_971_520, ge=1024, description="Of one image.")
    max_fetched_bytes: int = Field(
        default=33_554_432, ge=1024, description="Of all images that are fetched for one request."
    )
    max_image_pixels: int = Field(
        default=67_108_864, ge=1, description="Width times height, by the image's own head."
    )
    max_redirects: int = Field(default=3, ge=0)
    fetch_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="For all images of a request together, from when there is room to fetch them; as long a "
        "request waits for that room.",
    )
    max_fetches: int = Field(default=16, ge=1, description="Images that are fetched at once.")
    max_fetches_per_tenant: int = Field(default=8, ge=1, description="Of them those of one tenant.")
    max_audio_s: float = Field(
        default=7200.0, gt=0, description="Length of a recording, by its head, seconds."
    )
    max_uploads: int = Field(
        default=32, ge=1, description="Recordings that are uploaded or answered at once."
    )
    max_uploads_per_tenant: int = Field(default=8, ge=1, description="Of them those of one tenant.")
    upload_folder: str | None = Field(
        default=None,
        description="Where a recording of more than 256 KiB lies while its request lasts, in a file without "
        "a name; at most `max_uploads` times `limits.max_upload_bytes` for each gateway. Default: "
        "`/var/tmp`, or where that cannot be written the machine's folder for temporary files.",
    )

    @field_validator("allowed_domains")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ValueError(
                    f"{host!r}: expected a host such as `images.example.com`, in lower case, or `*`"
                )
        return hosts
