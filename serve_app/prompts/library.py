"""All prompts of a folder: which one a request means, and who may use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from serve_app.errors import BadRequest, SettingsError
from serve_app.prompts.files import ABOUT, ID, MARKDOWN, YAML, read_tenants, read_version
from serve_app.prompts.labels import FILE, PRODUCTION, Labels
from serve_app.prompts.reference import Reference
from serve_app.prompts.resolved import Resolved
from serve_app.prompts.version import SHOWN_CHARS, PromptVersion

Files = Mapping[str, bytes | SettingsError]
"""What a folder holds, by the path within it; an error stands for a file that could not be read."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """``tenants``: who may use it; ``None``: everybody."""

    id: str
    versions: Mapping[str, PromptVersion]
    tenants: frozenset[str] | None = None

    def serves(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


@dataclass(frozen=True, slots=True)
class Library:
    """``problems``: one line for each file that cannot be used as it is now; what was known before stays for
    it."""

    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)
    problems: tuple[str, ...] = ()

    def resolved(self, asked: Reference, tenant: str, most_chars: int) -> Resolved:
        """Raises: BadRequest: there is no such prompt, version or label for this tenant, or its variables are
        wrong."""
        prompt = self.prompts.get(asked.id)
        if prompt is None or not prompt.serves(tenant):
            raise BadRequest(
                f"There is no prompt {asked.id[:SHOWN_CHARS]!r}.", param="prompt.id", code="unknown_prompt"
            )
        version = self._version(prompt, asked.version)
        messages = version.filled(asked.variables, most_chars)
        return Resolved(prompt.id, version.name, version.digest, messages)

    def version_of(self, prompt: str, named: str) -> PromptVersion:
        """The version of a name or a label, for people. Raises: SettingsError."""
        known = self.prompts.get(prompt)
        if known is None:
            raise SettingsError(f"{prompt}: there is no such prompt; known: {_listed(self.prompts)}")
        version = known.versions.get(self.labels.versions.get((prompt, named), named))
        if version is None:
            names = _listed([*known.versions, *self.labels.of(prompt)])
            raise SettingsError(f"{prompt}: there is no version or label {named!r}; known: {names}")
        return version

    def _version(self, prompt: Prompt, named: str | None) -> PromptVersion:
        """A version of this name, else what a label of this name stands for."""
        wanted = PRODUCTION if named is None else named
        version = prompt.versions.get(wanted)
        if version is None:
            labelled = self.labels.versions.get((prompt.id, wanted))
            version = None if labelled is None else prompt.versions.get(labelled)
        if version is not None:
            return version
        if named is None:
            what = f"The prompt {prompt.id!r} has no label {PRODUCTION!r}: name a version."
        else:
            what = f"The prompt {prompt.id!r} has no version or label {named[:SHOWN_CHARS]!r}."
        raise BadRequest(what, param="prompt.version", code="unknown_prompt_version")


EMPTY = Library()


def library_of(files: Files, former: Library = EMPTY) -> Library:
    """The library of a folder. A file that cannot be used leaves its prompt (or all labels) as ``former`` had
    them, if it did, and adds a line to ``problems``."""
    prompts: dict[str, Prompt] = {}
    problems: list[str] = []
    by_prompt: dict[str, dict[str, bytes | SettingsError]] = {}
    for path, content in files.items():
        folder, _, name = path.rpartition("/")
        if folder:
            by_prompt.setdefault(folder, {})[name] = content
    for folder, own in sorted(by_prompt.items()):
        try:
            prompts[folder] = _prompt(folder, own)
        except SettingsError as error:
            problems.append(str(error))
            if folder in former.prompts:
                prompts[folder] = former.prompts[folder]
    labels = Labels()
    try:
        if FILE in files:
            labels = labels_of(files[FILE])
            problems += _astray(labels, prompts)
    except SettingsError as error:
        problems.append(str(error))
        labels = former.labels
    return Library(prompts, labels, tuple(problems))


def labels_of(content: bytes | SettingsError) -> Labels:
    """What the file of labels says. Raises: SettingsError."""
    return Labels.read(_content(content, FILE).decode("utf-8", "replace"), FILE)


def _prompt(folder: str, files: Files) -> Prompt:
    if not ID.fullmatch(folder):
        raise SettingsError(f"{folder}: expected a name of letters, digits, `_`, `.` and `-`")
    tenants: frozenset[str] | None = None
    versions: dict[str, PromptVersion] = {}
    for name, content in sorted(files.items()):
        where = f"{folder}/{name}"
        if name == ABOUT:
            tenants = read_tenants(_content(content, where), where)
            continue
        path = PurePosixPath(name)
        if path.suffix not in (*MARKDOWN, *YAML):
            continue
        if not ID.fullmatch(path.stem):
            raise SettingsError(f"{where}: expected a name of letters, digits, `_`, `.` and `-`")
        if path.stem in versions:
            raise SettingsError(f"{where}: the version {path.stem!r} has two files")
        versions[path.stem] = read_version(path.stem, _content(content, where), path.suffix, where)
    return Prompt(folder, versions, tenants)


def _content(content: bytes | SettingsError, where: str) -> bytes:
    """An editor empties a file before it writes it: an empty one says nothing, and must not take labels, a
    prompt's text or its tenants away for a moment. Raises: SettingsError."""
    if isinstance(content, SettingsError):
        raise content
    if not content:
        raise SettingsError(f"{where}: expected a file that is not empty")
    return content


def _astray(labels: Labels, prompts: Mapping[str, Prompt]) -> list[str]:
    """Labels that name what is not there."""
    return [
        f"{FILE}: labels.{prompt}.{label}: there is no version {version!r}"
        for (prompt, label), version in labels.versions.items()
        if prompt not in prompts or version not in prompts[prompt].versions
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
