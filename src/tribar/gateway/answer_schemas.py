"""What the routes answer with, as JSON schemas for the OpenAPI document.

Answers are written by hand, without structs, so the schemas stand beside them; schemathesis holds one against the other
(``tests/clients/test_openapi.py``).
"""

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LOGPROB: Schema = {"type": "number", "maximum": 0}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    properties = required | (optional or {})
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


_IDS = _list(_COUNT)
_TOKEN = {"token": _TEXT, "logprob": _LOGPROB, "bytes": _list({"type": "integer", "minimum": 0, "maximum": 255})}
_CHAT_LOGPROBS = _object(
    {"content": _list(_object(_TOKEN | {"top_logprobs": _list(_object(_TOKEN))})), "refusal": {"type": "null"}}
)
_COMPLETION_LOGPROBS = _object(
    {
        "tokens": _list(_TEXT),
        "token_logprobs": _list(_or_null(_LOGPROB)),
        "top_logprobs": _list(_or_null(_map(_LOGPROB))),
        "text_offset": _list(_COUNT),
    }
)
_RANKED = _object({"logprob": _LOGPROB, "rank": {"type": ["integer", "null"]}, "decoded_token": _TEXT})
_PROMPT_LOGPROBS = _list(_or_null(_map(_RANKED)))
_CALL = _object(
    {"id": _TEXT, "type": {"const": "function"}, "function": _object({"name": _TEXT, "arguments": _TEXT})},
)
_MESSAGE = _object(
    {"role": {"const": "assistant"}, "content": _TEXT_OR_NULL, "refusal": {"type": "null"}},
    {"reasoning_content": _TEXT, "tool_calls": _list(_CALL)},
)
_CHAT_CHOICE = _object(
    {
        "index": _COUNT,
        "message": _MESSAGE,
        "logprobs": _or_null(_CHAT_LOGPROBS),
        "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
    },
    {"token_ids": _IDS},
)
_COMPLETION_CHOICE = _object(
    {
        "index": _COUNT,
        "text": _TEXT,
        "logprobs": _or_null(_COMPLETION_LOGPROBS),
        "finish_reason": {"enum": ["stop", "length"]},
    },
    {"token_ids": _IDS, "prompt_token_ids": _IDS, "prompt_logprobs": _PROMPT_LOGPROBS},
)
_USAGE = _object(
    {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
    },
    {"completion_tokens_details": _object({"reasoning_tokens": _COUNT})},
)
_MODEL = _object(
    {"id": _TEXT, "object": {"const": "model"}, "created": _COUNT, "owned_by": _TEXT, "max_model_len": _COUNT}
)


def _answer(kind: str, choice: Schema, optional: dict[str, Schema] | None = None) -> Schema:
    required = {"id": _TEXT, "object": {"const": kind}, "created": _COUNT, "model": _TEXT}
    return _object(required | {"choices": _list(choice), "usage": _USAGE}, optional)


_TGI_TOKEN = _object({"id": _COUNT, "text": _TEXT, "logprob": _LOGPROB, "special": {"type": "boolean"}})
_TGI_DETAILS = _object(
    {
        "finish_reason": {"enum": ["length", "stop_sequence", "eos_token"]},
        "generated_tokens": _COUNT,
        "seed": {"type": ["integer", "null"]},
        "prefill": _list(_object({"id": _COUNT, "text": _TEXT, "logprob": _or_null(_LOGPROB)})),
        "tokens": _list(_TGI_TOKEN),
    },
    {"top_tokens": _list(_list(_TGI_TOKEN))},
)
_GENERATED = _object({"generated_text": _TEXT}, {"details": _TGI_DETAILS})

_VECTOR: Schema = {"anyOf": [_list({"type": "number"}), _TEXT]}

ANSWERS: dict[str, tuple[str, Schema]] = {
    "/v1/chat/completions": (
        "ChatCompletion",
        _answer("chat.completion", _CHAT_CHOICE, {"prompt_logprobs": _PROMPT_LOGPROBS, "prompt_token_ids": _IDS}),
    ),
    "/v1/completions": ("Completion", _answer("text_completion", _COMPLETION_CHOICE)),
    "/tokenize": (
        "Tokenized",
        _object({"count": _COUNT, "max_model_len": _COUNT, "tokens": _IDS, "token_strs": _or_null(_list(_TEXT))}),
    ),
    "/detokenize": ("Detokenized", _object({"prompt": _TEXT})),
    "/generate": ("Generated", _GENERATED),
    "/": ("GeneratedList", _list(_GENERATED)),
    "/v1/embeddings": (
        "EmbeddingList",
        _object(
            {
                "object": {"const": "list"},
                "data": _list(_object({"object": {"const": "embedding"}, "index": _COUNT, "embedding": _VECTOR})),
                "model": _TEXT,
                "usage": _object({"prompt_tokens": _COUNT, "total_tokens": _COUNT}),
            }
        ),
    ),
    "/v1/cache/feedback": (
        "CacheFeedback",
        _object({"object": {"const": "cache.feedback"}, "id": _TEXT, "verdict": {"enum": ["right", "wrong"]}}),
    ),
    "/v1/cache": (
        "CacheInvalidation",
        _object(
            {"object": {"const": "cache.invalidation"}},
            {"tag": _TEXT, "document": _TEXT, "id": _TEXT, "all": {"const": True}},
        ),
    ),
    "/v1/cache/{id}": (
        "CacheEntry",
        _object(
            {"object": {"const": "cache.entry"}}
            | {"id": _TEXT, "model": _TEXT, "question": _TEXT, "answer": _TEXT, "created": _COUNT}
        ),
    ),
    "/v1/models": ("ModelList", _object({"object": {"const": "list"}, "data": _list(_MODEL)})),
    "/v1/models/{name}": ("Model", _MODEL),
    "/health/live": ("Live", _object({"status": {"const": "live"}})),
    "/health/ready": ("Ready", _object({"status": {"const": "ready"}})),
}
"""Route -> the name and the schema of an answer that is no stream and no error. Others are not described."""
