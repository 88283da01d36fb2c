"""Weight files: GGUF and safetensors, mapped and read lazily behind one contract (``base.WeightFile``)."""

from tribar.runtime.formats.base import TensorInfo, WeightFile
from tribar.runtime.formats.opening import locate_model, open_weights

__all__ = ["TensorInfo", "WeightFile", "locate_model", "open_weights"]
