"""What a model family is read from."""

from dataclasses import dataclass

from tribar.runtime.architectures.settings import Settings
from tribar.runtime.formats.base import WeightFile


@dataclass(frozen=True, slots=True)
class Source:
    """``settings`` is the object that describes the text model: of config.json (the nested ``text_config`` where
    there is one), or the GGUF metadata under the architecture's prefix.

    ``max_model_len`` None means the checkpoint's own context length.
    """

    weights: WeightFile
    settings: Settings
    max_model_len: int | None = None

    def with_defaults(self, defaults: dict[str, object]) -> "Source":
        """The same source, where absent settings take the family's documented defaults."""
        return Source(self.weights, self.settings.with_defaults(defaults), self.max_model_len)
