"""How a configuration is refused: the model, the field, what is wrong, and the way out."""

from tribar.core.errors import InvalidRequest, Unsupported


def refusal(model: str, field: str, reason: str) -> InvalidRequest:
    """The error for a wrong configuration. ``field`` is a path as ``input[0].dims[1]``, and becomes ``param``."""
    return InvalidRequest(_message(model, field, reason), param=field)


def not_offered(model: str, field: str, reason: str) -> Unsupported:
    """The error for a configuration that is right, but asks for what is not here; ``reason`` names the substitute."""
    return Unsupported(_message(model, field, reason), param=field)


def _message(model: str, field: str, reason: str) -> str:
    return f"model '{model}': {field}: {reason}"
