"""Streamed answers of both OpenAI endpoints: text as bytes of JSON, usage, and the frame around every chunk."""

from typing import Any

import orjson

from tribar.core.requests import Delta, Usage
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.sse import DONE


def usage_object(usage: Usage, n_reasoning_tokens: int | None = None) -> dict[str, Any]:
    """The ``usage`` object of the API; ``n_reasoning_tokens`` None where the model's thinking is not told apart."""
    details = {"completion_tokens_details": {"reasoning_tokens": n_reasoning_tokens}}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        **(details if n_reasoning_tokens is not None else {}),
    }


def json_text(text: str) -> orjson.Fragment:
    """``text`` as a JSON string that no line reader breaks.

    Some clients split event streams at every character that Unicode calls a line end; JSON leaves three of them raw.
    """
    data = orjson.dumps(text)
    if not text.isascii():
        for raw, escaped in ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085")):
            data = data.replace(raw, escaped)
    return orjson.Fragment(data)


def answer_object(head: AnswerHead[OpenAiCall], kind: str) -> dict[str, Any]:
    """What every answer and chunk of an answer begins with."""
    return {"id": head.answer_id, "object": kind, "created": head.created_s, "model": head.model}


class ChunkFrame:
    """The constant bytes around the choices of every chunk of one streamed answer, assembled once."""

    def __init__(self, head: AnswerHead[OpenAiCall], kind: str) -> None:
        fixed = orjson.dumps(answer_object(head, kind))
        self._start = b"data: " + fixed[:-1] + b',"choices":['
        self._shows = head.call.shows
        self._no_usage = b',"usage":null}\n\n' if self._shows.usage else b"}\n\n"
        self._n_prompt = [prepared.n_tokens for prepared in head.prepared]
        self._n_output = [0] * len(head.prepared)

    def count(self, index: int, delta: Delta) -> None:
        """Take note of the tokens of choice ``index``, for the usage that chunks may carry."""
        self._n_output[index] += len(delta.token_ids)
        if delta.finish is not None:
            self._n_output[index] = delta.finish.usage.completion_tokens

    def event(self, index: int, choice: dict[str, Any], **more: Any) -> bytes:  # noqa: ANN401
        """One chunk with one choice, and ``more`` fields beside it."""
        middle = orjson.dumps({"index": index} | choice) + b"]"
        if more:
            middle += b"," + orjson.dumps(more)[1:-1]
        return self._start + middle + self._usage_so_far(index)

    def tail(self, usage: Usage, n_reasoning_tokens: int | None = None) -> bytes:
        """The chunk without choices, where asked for, and the end."""
        if not self._shows.usage:
            return DONE
        return self._start + b'],"usage":' + orjson.dumps(usage_object(usage, n_reasoning_tokens)) + b"}\n\n" + DONE

    def _usage_so_far(self, index: int) -> bytes:
        if not self._shows.continuous_usage:
            return self._no_usage
        n_prompt, n_output = self._n_prompt[index], self._n_output[index]
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_output, "total_tokens": n_prompt + n_output}
        return b',"usage":' + orjson.dumps(usage) + b"}\n\n"
