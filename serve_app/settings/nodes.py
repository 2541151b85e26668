"""On which nodes of a cluster the parts around the engines run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from serve_app.settings.base import Frozen

Resource = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class NodeSettings(Frozen):
    """Names of Ray's own resources (`ray start --resources='{"NAME": 1}'`): a part runs only on nodes that
    have the one that is named for it. Default: any node with room. `promptly manifest` sets both."""

    front: Resource | None = Field(default=None, description="For gateways and embedders.")
    files: Resource | None = Field(
        default=None,
        description="For the owners of files: the cache, `responses`, `accounts`, `feedback`. Give it to one "
        "node, whose disk they need when they start again.",
    )
