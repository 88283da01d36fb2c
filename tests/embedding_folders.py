"""Tiny sentence embedders as ONNX folders: a random table of word vectors, one row a word."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.onnx_models import model, tensor
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "how", "do", "i", "get", "a", "refund"),
    *("where", "is", "my", "cat", "the", "money", "back", "退", "款"),
]
DIMENSION = 24
MAX_TOKENS = 16


def table(seed: int) -> np.ndarray:
    """Float32 (len(WORDS), DIMENSION): what the model looks up."""
    return np.random.Generator(np.random.PCG64(seed)).standard_normal((len(WORDS), DIMENSION)).astype(np.float32)


def write_folder(folder: Path, *, seed: int = 1, pooling: str = "mean_tokens", data: str = "model.onnx") -> Path:
    """A whole folder, as Optimum exports one; ``data`` may be ``onnx/model.onnx``."""
    ids = tensor("input_ids", ("batch", "tokens"), TensorProto.INT64)
    mask = tensor("attention_mask", ("batch", "tokens"), TensorProto.INT64)
    states = tensor("last_hidden_state", ("batch", "tokens", DIMENSION))
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["column"]),
        # a padded place gets a large wrong value, so that pooling over it is seen
        helper.make_node("Sub", ["one", "column"], ["padding"]),
        helper.make_node("Mul", ["padding", "thousand"], ["noise"]),
        helper.make_node("Add", ["rows", "noise"], ["last_hidden_state"]),
    ]
    constants = {"table": table(seed), "last": np.array([2]), "one": np.float32(1), "thousand": np.float32(1000)}
    proto = model(
        nodes, [ids, mask], [states], [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    )
    (folder / data).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, folder / data)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "config.json", {"hidden_size": DIMENSION, "max_position_embeddings": 64, "model_type": "bert"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_TOKENS})
    write_json(folder / "1_Pooling/config.json", {f"pooling_mode_{pooling}": True, "pooling_mode_max_tokens": False})
    return folder


def write_json(path: Path, content: Any) -> None:
    """Make the folder too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
