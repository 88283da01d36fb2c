"""Where models come from: MODEL strings become local paths that ``runtime.formats`` opens."""

from tribar.runtime.sources.fetch import DEFAULT_MODEL, cache_directory, fetch_model
from tribar.runtime.sources.progress import Progress

__all__ = ["DEFAULT_MODEL", "Progress", "cache_directory", "fetch_model"]
