"""Finds models in one or several repository directories (Triton's layout: MODEL/config.pbtxt, MODEL/VERSION/...)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tribar.core.errors import Conflict, InvalidRequest, NotFound
from tribar.modelserver.model_config.inspection import CONFIG_FILE
from tribar.modelserver.repository.names import check_model_name

_log = logging.getLogger(__name__)


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
        self._told: set[str] = set()

    def names(self) -> list[str]:
        """Of all models, sorted. Files, and hidden folders without a configuration (``.git``), are none.

        Nor are folders whose name no request could give, as one that is not UTF-8: they are logged once.
        """
        found = {entry.name for root in self._roots for entry in root.iterdir() if _may_be_model(entry)}
        return sorted(filter(self._is_model_name, found))

    def _is_model_name(self, name: str) -> bool:
        try:
            check_model_name(name)
        except InvalidRequest as error:
            if name not in self._told:
                self._told.add(name)
                _log.warning("a folder of the model repository is ignored: %s", error.message)
            return False
        return True

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
