"""Says the words of its prompt again, one response each, with the tensors of Triton's vLLM backend.

A prompt that begins with ``fail`` fails; one that begins with ``endless`` goes on until it is cancelled.
"""

import itertools
import json
import threading
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


def _tensor(name: str, value: str | int) -> Any:
    kind = np.object_ if isinstance(value, str) else np.uint32
    return pb_utils.Tensor(name, np.array([value.encode() if isinstance(value, str) else value], dtype=kind))


def _response(text: str, reason: str, n_prompt: int, n_output: int) -> Any:
    outputs = {
        "text_output": text,
        "finish_reason": reason,
        "num_input_tokens": n_prompt,
        "num_output_tokens": n_output,
    }
    return pb_utils.InferenceResponse([_tensor(name, value) for name, value in outputs.items()])


def _text(request: Any, name: str) -> str:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return "" if tensor is None else tensor.as_numpy()[0].decode()


class TritonPythonModel:
    _pause = threading.Event()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            threading.Thread(target=self._answer, args=(request,)).start()

    def _answer(self, request: Any) -> None:
        sender = request.get_response_sender()
        prompt = _text(request, "text_input")
        words = prompt.split()
        if words[0] == "fail":
            error = pb_utils.TritonError("it was told to", pb_utils.TritonError.INVALID_ARG)
            sender.send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        limit = json.loads(_text(request, "sampling_parameters"))["max_tokens"]
        said = itertools.cycle(words) if words[0] == "endless" else iter(words[:limit])
        for word in said:
            if request.is_cancelled():
                break
            sender.send(_response(word + " ", "None", len(words), 1))
            self._pause.wait(0.001)
        reason = "length" if len(words) > limit else "stop"
        sender.send(_response("", reason, len(words), 0), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
