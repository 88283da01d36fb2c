"""The accuracy of another engine on the same text, judged by the reference that ``accuracy --save`` wrote.

Runs in the rival's own Python, from the root of this repository; imports numpy and that engine alone. MODEL is a .gguf
file for llama.cpp (llama-cpp-python), or the openvino_model.xml that OpenVINO GenAI leaves beside a .gguf file with
``LLMPipeline(file, "CPU", enable_save_ov_model=True)``. PROPERTY=VALUE are OpenVINO's, such as its precision hint.

    python -m benchmarks.rival_accuracy REFERENCE.npz MODEL [INFERENCE_PRECISION_HINT=bf16]
"""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.divergence import Float32s, Int32s, Reference, Score, log_softmax

Model = Callable[[Int32s], Float32s]
"""From the ids of a window to the logits of every position, [n, vocab]."""


def llama_cpp(path: Path, window: int) -> Model:
    """llama.cpp with its defaults, every window in one batch."""
    llama = importlib.import_module("llama_cpp").Llama(
        str(path), n_ctx=window, n_batch=window, logits_all=True, verbose=False
    )

    def logits(ids: Int32s) -> Float32s:
        llama.reset()
        llama.eval(ids.tolist())
        return np.array(llama.scores[: len(ids)])

    return logits


def openvino(path: Path, properties: dict[str, str]) -> Model:
    """OpenVINO on the model that its GenAI made of a GGUF file."""
    request = (
        importlib.import_module("openvino").Core().compile_model(str(path), "CPU", properties).create_infer_request()
    )

    def logits(ids: Int32s) -> Float32s:
        positions = np.arange(len(ids), dtype=np.int64)[None]
        request.reset_state()
        inputs = {
            "input_ids": ids.astype(np.int64)[None],
            "attention_mask": np.ones_like(positions),
            "position_ids": positions,
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        return np.array(request.infer(inputs)["logits"][0])

    return logits


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("properties", nargs="*", metavar="PROPERTY=VALUE")
    options = parser.parse_args()
    reference, score = Reference.load(options.reference), Score()
    if options.model.suffix == ".gguf":
        model = llama_cpp(options.model, reference.ids.shape[1])
    else:
        model = openvino(options.model, dict(item.split("=", 1) for item in options.properties))
    for ids, log_probabilities in reference:
        score.add(ids, log_softmax(model(ids)), log_probabilities)
    print(f"{options.model.name} {' '.join(options.properties)}  {score}", flush=True)


if __name__ == "__main__":
    main()
