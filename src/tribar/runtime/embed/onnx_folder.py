"""Any sentence embedder exported to ONNX: a folder as Sentence Transformers and Hugging Face's Optimum write it.

::

    tokenizer.json                      the tokenizer
    model.onnx | onnx/model.onnx        input_ids [, attention_mask, token_type_ids] -> states (batch, tokens, d),
                                        or vectors (batch, d), which are taken as they are
    1_Pooling/config.json               mean or CLS; without it: mean
    sentence_bert_config.json, tokenizer_config.json, config.json    the limit of length; the smallest that is given
    modules.json                        what else the vectors pass; anything but pooling and normalising is refused
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import BadModelFile, Unsupported
from tribar.core.ports import EmbedderCard
from tribar.runtime.embed.base import fingerprint

MAX_BATCH = 32
_DEFAULT_MAX_TOKENS = 512
_HUGE = 1_000_000
"""Hugging Face writes 1e30 for "no limit known"."""
_KNOWN_MODULES = {"Transformer", "Pooling", "Normalize"}


class OnnxFolder:
    """Raises ``BadModelFile`` naming the file that is missing or unusable, ``Unsupported`` for pooling it cannot do."""

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        self._pooling = _pooling(folder)
        self._tokenizer = _open_tokenizer(folder)
        path = next((p for p in (folder / "model.onnx", folder / "onnx" / "model.onnx") if p.is_file()), None)
        if path is None:
            raise BadModelFile(f"{folder} has neither model.onnx nor onnx/model.onnx")
        self._session = _open_session(path, threads)
        self._inputs = {one.name for one in self._session.get_inputs()}
        output = self._session.get_outputs()[0]
        self._output, rank, width = output.name, len(output.shape), output.shape[-1]
        if rank not in {2, 3} or not self._inputs <= {"input_ids", "attention_mask", "token_type_ids"}:
            raise BadModelFile(f"{path}: not an encoder of text: inputs {sorted(self._inputs)}, output of rank {rank}")
        dimension = width if isinstance(width, int) else _read(folder / "config.json").get("hidden_size")
        if not isinstance(dimension, int):
            raise BadModelFile(f"{path}: neither the graph nor config.json tells the dimension")
        print_ = fingerprint([path, *sorted(path.parent.glob(f"{path.name}_data")), folder / "tokenizer.json"])
        self._card = EmbedderCard(folder.resolve().name, print_, dimension, _max_tokens(folder))

    def card(self) -> EmbedderCard:
        """See ``EmbeddingModel``."""
        return self._card

    def count_tokens(self, text: str) -> int:
        """See ``EmbeddingModel``."""
        return len(self._tokenizer.encode(text).ids)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See ``EmbeddingModel``."""
        parts = [self._encode(list(texts[i : i + MAX_BATCH])) for i in range(0, len(texts), MAX_BATCH)]
        return np.concatenate(parts)

    def close(self) -> None:
        """See ``EmbeddingModel``."""

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        encoded = self._tokenizer.encode_batch(texts)
        longest = max(len(one.ids) for one in encoded)
        ids, mask = np.zeros((2, len(texts), longest), np.int64)
        for row, one in enumerate(encoded):
            ids[row, : len(one.ids)], mask[row, : len(one.ids)] = one.ids, 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        fed = {name: value for name, value in feeds.items() if name in self._inputs}
        (states,) = self._session.run([self._output], fed)
        if states.ndim == 2:
            return np.asarray(states, np.float32)
        if self._pooling == "cls":
            return np.asarray(states[:, 0], np.float32)
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((states * weights).sum(axis=1) / weights.sum(axis=1), np.float32)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadModelFile(f"{path} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {"items": content}


def _pooling(folder: Path) -> str:
    modules = [str(one.get("type", "")).rpartition(".")[2] for one in _read(folder / "modules.json").get("items", [])]
    strange = set(modules) - _KNOWN_MODULES
    if strange:
        raise Unsupported(
            f"{folder / 'modules.json'} asks for {sorted(strange)}; only pooling and normalising are done"
        )
    config = _read(folder / "1_Pooling" / "config.json")
    modes = {name for name, wanted in config.items() if name.startswith("pooling_mode_") and wanted is True}
    if modes <= {"pooling_mode_mean_tokens"}:
        return "mean"
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    raise Unsupported(f"{folder / '1_Pooling' / 'config.json'} asks for {sorted(modes)}; only mean or CLS can be done")


def _max_tokens(folder: Path) -> int:
    config = _read(folder / "config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type", "")):
        positions -= 2  # its positions start behind the padding id
    found = (
        _read(folder / "sentence_bert_config.json").get("max_seq_length"),
        _read(folder / "tokenizer_config.json").get("model_max_length"),
        positions,
    )
    known = [int(limit) for limit in found if isinstance(limit, int | float) and 0 < limit < _HUGE]
    return min(known, default=_DEFAULT_MAX_TOKENS)


def _open_tokenizer(folder: Path) -> Any:  # noqa: ANN401 - an untyped library
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadModelFile(f"{path} is missing")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BadModelFile(f"{path} cannot be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _open_session(path: Path, threads: int) -> Any:  # noqa: ANN401 - an untyped library
    try:
        import onnxruntime
    except ImportError as error:
        raise Unsupported(
            "an ONNX embedder needs onnxruntime: pip install 'tribar[models]'", param="embedder"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors share no base of their own
        raise BadModelFile(f"{path} cannot be loaded: {error}") from error
