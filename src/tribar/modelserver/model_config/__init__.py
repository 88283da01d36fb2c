"""A model's configuration, Triton's ``config.pbtxt``: read, completed, validated, and turned into a signature.

The order for a model of a repository: ``parse_config`` (or ``config_from_json`` for a load request's), ``complete``,
the backend's ``complete`` (once for a version that is served), ``complete`` again, ``validate``. What
``validate_written`` finds can be told before any of it. ``positioned`` adds line and column to an error of the two
about a configuration that came from a file.
"""

from tribar.modelserver.model_config.completion import (
    DEFAULT_MAX_BATCH_SIZE,
    SERVED_BACKENDS,
    complete,
    complete_batching,
)
from tribar.modelserver.model_config.json_form import config_from_json, config_to_json
from tribar.modelserver.model_config.labels import read_labels
from tribar.modelserver.model_config.model_files import check_model_files
from tribar.modelserver.model_config.positions import positioned
from tribar.modelserver.model_config.signatures import data_type_of, signature_of
from tribar.modelserver.model_config.text import parse_config
from tribar.modelserver.model_config.validation import validate, validate_written
from tribar.modelserver.model_config.versions import ignored_directories, version_directories, versions_served

__all__ = [
    "DEFAULT_MAX_BATCH_SIZE",
    "SERVED_BACKENDS",
    "check_model_files",
    "complete",
    "complete_batching",
    "config_from_json",
    "config_to_json",
    "data_type_of",
    "ignored_directories",
    "parse_config",
    "positioned",
    "read_labels",
    "signature_of",
    "validate",
    "validate_written",
    "version_directories",
    "versions_served",
]
