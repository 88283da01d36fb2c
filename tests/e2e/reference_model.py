"""The default model in Hugging Face transformers, weights from the same GGUF in fp32; loaded once, which is slow."""

import functools
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM

from tribar.runtime.sources import DEFAULT_MODEL, fetch_model


@functools.cache
def reference_model() -> Any:
    path = Path(fetch_model(DEFAULT_MODEL))
    with pytest.MonkeyPatch.context() as patch:
        # the file is read once more for its configuration, the map made anew for every module
        patch.setattr(gguf, "GGUFReader", functools.cache(gguf.GGUFReader))
        patch.setattr(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
