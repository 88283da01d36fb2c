"""Where models lie: folders, versions, what changed in them, and what a load request puts in their place."""

from tribar.modelserver.repository.control import Control, ControlMode
from tribar.modelserver.repository.fingerprint import Fingerprint, take_fingerprint
from tribar.modelserver.repository.folders import ModelFolder, ModelFolders
from tribar.modelserver.repository.names import check_model_name
from tribar.modelserver.repository.overrides import Overrides, read_overrides

__all__ = [
    "Control",
    "ControlMode",
    "Fingerprint",
    "ModelFolder",
    "ModelFolders",
    "Overrides",
    "check_model_name",
    "read_overrides",
    "take_fingerprint",
]
