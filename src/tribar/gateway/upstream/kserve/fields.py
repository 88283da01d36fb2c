"""``GenerateRequest`` -> tensors of a language model on Triton, by what the model declares.

Two conventions are known: the vLLM backend's, whose ``sampling_parameters`` is JSON with the names of vLLM's
``SamplingParams``, and TensorRT-LLM's, with a tensor for each parameter. Both take the prompt as ``text_input``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.requests import GenerateRequest, TextPrompt
from tribar.gateway.upstream.openai.body import fitting_seed

PROMPT = "text_input"
SAMPLING_PARAMETERS = "sampling_parameters"

TENSORS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "request_output_len"),
    "temperature": ("temperature",),
    "top_p": ("top_p", "runtime_top_p"),
    "top_k": ("top_k", "runtime_top_k"),
    "min_p": ("min_p",),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "repetition_penalty": ("repetition_penalty",),
    "min_tokens": ("min_tokens", "min_length"),
    "seed": ("seed", "random_seed"),
    "stop": ("stop_words", "stop"),
}
"""A parameter's tensor, under the names that versions of TensorRT-LLM's models gave it."""

WISHES = (
    "stream",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
"""Switches that are turned on where a model has them."""

_NEUTRAL: Mapping[str, object] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "seed": None,
    "stop": [],
    "logit_bias": {},
    "stop_token_ids": [],
    "ignore_eos": False,
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
    "truncate_prompt_tokens": None,
}
_PARAMS = {"include_stop_str_in_output": "include_stop_text", "truncate_prompt_tokens": "truncate_prompt"}
"""Our names, where they differ from vLLM's."""


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input: its values fill the last of its dimensions."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DeclaredInput:
    """What a model's metadata says of an input."""

    datatype: str
    n_dims: int


class TensorWriter:
    """Writes requests for one model. ``max_model_len`` is what an answer without a limit may take; 0 if not known."""

    def __init__(self, upstream: str, declared: Mapping[str, DeclaredInput], max_model_len: int = 0) -> None:
        self._upstream = upstream
        self._declared = declared
        self._max_model_len = max_model_len

    def write(self, request: GenerateRequest) -> list[InputTensor]:
        """The inputs. Raises ``Unsupported`` naming what the model cannot be told."""
        prompt = request.prompt
        if not isinstance(prompt, TextPrompt) or not prompt.add_special:
            raise self._unsupported("anything but a plain text as prompt", "prompt")
        self._refuse(request)
        parameters = self._parameters(request)
        if SAMPLING_PARAMETERS in self._declared:
            told: dict[str, list[Any]] = {SAMPLING_PARAMETERS: [orjson.dumps(parameters).decode()]}
        else:
            told = dict(self._by_tensor(parameters))
        told |= {name: [True] for name in WISHES if name in self._declared}
        return [self._tensor(name, values) for name, values in ({PROMPT: [prompt.text]} | told).items()]

    def _refuse(self, request: GenerateRequest) -> None:
        wants = request.wants
        for is_asked, what, param in (
            (
                (wants.logprobs, wants.prompt_logprobs, wants.hidden) != (None, None, False),
                "log-probabilities",
                "logprobs",
            ),
            (request.grammar is not None, "a form of the answer", request.grammar.param if request.grammar else ""),
            (request.sampling.suppressed != (), "suppressed tokens", "suppressed"),
            (request.priority != 0, "a priority", "priority"),
            (request.max_tokens == 0, "scoring a prompt (max_tokens 0)", "max_tokens"),
        ):
            if is_asked:
                raise self._unsupported(what, param)

    def _parameters(self, request: GenerateRequest) -> dict[str, Any]:
        """By vLLM's names: the two that every request has, and what is not neutral."""
        sampling = request.sampling
        values: dict[str, Any] = {
            "max_tokens": request.max_tokens or self._max_model_len,
            "temperature": sampling.temperature,
        }
        if not values["max_tokens"]:
            raise InvalidRequest(
                f"max_tokens is needed: the upstream {self._upstream!r} does not tell its context", param="max_tokens"
            )
        for name, neutral in _NEUTRAL.items():
            value = getattr(request, _PARAMS.get(name, name), None)
            value = getattr(sampling, name, value)
            value = _WRITTEN.get(name, lambda same: same)(value)
            if value != neutral:
                values[name] = value
        return values

    def _by_tensor(self, parameters: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
        greedy = {"top_k": 1, "temperature": 1.0}  # a temperature of 0 divides by it there
        values = {**parameters, **(greedy if parameters["temperature"] == 0 else {})}
        for name, value in values.items():
            tensor = next((one for one in TENSORS.get(name, ()) if one in self._declared), None)
            if tensor is not None:
                yield tensor, value if isinstance(value, list) else [value]
            elif (name, value) != ("temperature", 1.0):
                raise self._unsupported(name, name)

    def _tensor(self, name: str, values: list[Any]) -> InputTensor:
        declared = self._declared.get(name, DeclaredInput("BYTES", 1))
        shape = (*(1,) * (declared.n_dims - 1), len(values))
        return InputTensor(name, declared.datatype, shape, tuple(values))

    def _unsupported(self, what: str, param: str) -> Unsupported:
        return Unsupported(
            f"{what} is not supported by the upstream {self._upstream!r}: leave it out",
            param=param,
            code="unsupported_field",
        )


_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "logit_bias": lambda pairs: {str(token_id): bias for token_id, bias in pairs},
    "seed": lambda seed: None if seed is None else fitting_seed(seed, -64),
    "stop": list,
    "stop_token_ids": list,
}
