"""What is offered under each name of a model: its paths, and the fingerprint of what answers."""

from __future__ import annotations

from serve_app.errors import EmbedderOnly, NotFound, UnknownModel
from serve_app.fleet import FleetTable
from serve_app.model_choice.names import ModelNames
from serve_app.request.paths import require_no_shared_prefix, require_offered, require_task
from serve_app.settings import Settings
from serve_app.settings.fingerprint import fingerprint
from serve_app.settings.paths import ASKED_AS, own_name


class Offers:
    """Made once from the settings. Aliases and adapters are names like any other. ``fleet`` knows which tasks
    a model turned out to have. ``separates``: tenants must not share prefixes."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        fleet: FleetTable | None = None,
        *,
        separates: bool = False,
    ) -> None:
        of_models = {model.id: fingerprint(model) for model in settings.models}
        paths = {model.id: model.offered_paths for model in settings.models}
        self._fingerprints = of_models | names.fingerprints(of_models)
        self._paths = {name: _with_dialects(paths[names.model_of(name)]) for name in names.served}
        self._all = frozenset[str]().union(*self._paths.values())
        self._names = names
        self._fleet = fleet
        self._separates = separates
        self._embedder = None if settings.embedder is None else settings.embedder.id

    def fingerprint(self, model: str) -> str:
        """Names the weights and settings behind an engine's model. Raises: UnknownModel, EmbedderOnly."""
        try:
            return self._fingerprints[model]
        except KeyError:
            if model == self._embedder:
                raise EmbedderOnly(model) from None
            embedder = [] if self._embedder is None else [self._embedder]
            raise UnknownModel(model, [*self._fingerprints, *embedder]) from None

    def own(self, model: str) -> str:
        """The name that engines know. ``model`` must be that of a model."""
        return self._names.own(model)

    def path_of(self, path: str, model: str | None = None) -> str:
        """The path as the members of ``model`` (of any model) write it."""
        return own_name(path, self._all if model is None else self._paths[model])

    def require(self, path: str, model: str | None = None) -> None:
        """See :func:`~serve_app.request.paths.require_offered`. Raises: NotFound."""
        require_offered(self._paths, path, model)
        if model is not None and self._fleet is not None:
            reports = [member.report for member in self._fleet.members(self._names.model_of(model))]
            require_task(reports, ASKED_AS.get(path, path), model)
            if self._separates:
                require_no_shared_prefix(reports, path, model)

    def names_with(self, path: str) -> list[str]:
        """The models that offer ``path``, as far as the tasks of their members are known."""
        return [name for name, paths in self._paths.items() if path in paths and self._may_have(path, name)]

    def _may_have(self, path: str, name: str) -> bool:
        try:
            self.require(path, name)
        except NotFound:
            return False
        return True


def _with_dialects(paths: frozenset[str]) -> frozenset[str]:
    """Where the path that stands behind it is missing, a dialect's is not offered, even if it is listed."""
    return (paths - ASKED_AS.keys()) | {path for path, behind in ASKED_AS.items() if behind in paths}
