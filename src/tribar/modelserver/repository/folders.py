"""Finds models in one or several repository directories (Triton's layout: MODEL/config.pbtxt, MODEL/VERSION/...)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tribar.core.errors import Conflict, InvalidRequest, NotFound
from tribar.modelserver.model_config.inspection import CONFIG_FILE
from tribar.modelserver.repository.names import check_model_name


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk. Nothing below ``path`` that leads out of ``root`` is ever read."""

    name: str
    path: Path
    root: Path

    @property
    def config_path(self) -> Path:
        """Where its configuration is, if it has one."""
        return self.path / CONFIG_FILE


class ModelFolders:
    """All repository directories together. Every method reads the disk, so call them off the event loop."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Raises ``InvalidRequest`` naming a directory that is none."""
        for root in roots:
            if not root.is_dir():
                raise InvalidRequest(f"model repository {str(root)!r} is not a directory", param="model_repository")
        self._roots = tuple(root.resolve() for root in roots)

    def names(self) -> list[str]:
        """Of all models, sorted. Files, and hidden folders without a configuration (``.git``), are none."""
        return sorted({entry.name for root in self._roots for entry in root.iterdir() if _may_be_model(entry)})

    def find(self, name: str) -> ModelFolder:
        """The folder of a model.

        Raises ``InvalidRequest`` for a name that cannot be one, ``NotFound`` where there is no such folder, and
        ``Conflict`` where several repositories have one or it leads out of its repository.
        """
        check_model_name(name)
        found = [root for root in self._roots if (root / name).is_dir()]
        if not found:
            raise NotFound(f"no repository has a folder '{name}'", param="model_name")
        if len(found) > 1:
            raise Conflict(f"model '{name}' is in several repositories: {', '.join(map(str, found))}")
        root = found[0]
        path = (root / name).resolve()
        if not path.is_relative_to(root) or path == root:
            raise Conflict(f"the folder of model '{name}' leads out of the repository; copy it instead of linking it")
        return ModelFolder(name, path, root)


def _may_be_model(entry: Path) -> bool:
    return entry.is_dir() and (not entry.name.startswith(".") or (entry / CONFIG_FILE).is_file())
