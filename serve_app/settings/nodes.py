"""On which nodes of a cluster the parts around the engines run."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from serve_app.settings.base import Frozen

Resource = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class NodeSettings(Frozen):
    """Names of Ray's own resources (`ray start --resources='{"NAME": 1}'`): a part runs only on nodes that
    have the one that is named for it. Default: any node with room. `promptly manifest` sets both."""

    front: Resource | None = Field(default=None, description="For gateways and embedders.")
    files: Resource | None = Field(
        default=None,
        description="For the owners of files: the cache, `responses`, `accounts`, `feedback`. Give it to one "
        "node, whose disk they need when they start again. It is another name than that of `front`, of which "
        "there may be several nodes; one node may have both.",
    )

    @model_validator(mode="after")
    def _keep_files_apart(self) -> Self:
        if self.front is not None and self.front == self.files:
            raise ValueError(shared_name(self.files))
        return self


def shared_name(name: str) -> str:
    """Why the two names differ. A cluster where one node alone has the name would lose nothing, but no
    config tells it from one where gateways run on several."""
    return (
        f"`front` and `files` are both {name!r}: an owner of files could start again on another node for "
        "gateways, where its files are not; give `files` a name of its own. One node may have both names"
    )
