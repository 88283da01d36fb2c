"""tribar serves models: ``tribar.LLM`` in Python, ``tribar serve`` over HTTP.

Nothing heavy is imported here: the names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tribar.app.llm import LLM, Generation
    from tribar.core.requests import Grammar, GrammarKind
    from tribar.core.sampling.params import SamplingParams

__version__ = "0.1.0"

__all__ = ["LLM", "Generation", "Grammar", "GrammarKind", "SamplingParams", "__version__"]

_HOMES = {
    "LLM": "tribar.app.llm",
    "Generation": "tribar.app.llm",
    "Grammar": "tribar.core.requests",
    "GrammarKind": "tribar.core.requests",
    "SamplingParams": "tribar.core.sampling.params",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tribar' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
