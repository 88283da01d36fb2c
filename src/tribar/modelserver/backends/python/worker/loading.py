"""Import a model's ``model.py`` as Triton does."""

import importlib
import sys
import types
from pathlib import Path


def load_model_class(path: str) -> type:
    """``TritonPythonModel`` of the file ``MODEL/VERSION/model.py``, imported as ``VERSION.model``.

    Files beside it and one level up can be imported by their names, and with ``from . import``. Raises whatever the
    file raises, ``FileNotFoundError`` and ``AttributeError`` among it.
    """
    file = Path(path)
    version_directory = file.parent
    sys.path += [str(version_directory), str(version_directory.parent)]
    package = types.ModuleType(version_directory.name)
    package.__path__ = [str(version_directory)]
    sys.modules[version_directory.name] = package
    module = importlib.import_module(f"{version_directory.name}.{file.stem}")
    model_class = module.TritonPythonModel
    assert isinstance(model_class, type)
    return model_class
