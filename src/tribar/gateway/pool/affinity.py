"""What a request shares with others in a prefix cache, as a number."""

import hashlib
from collections.abc import Iterator

from tribar.core.requests import ChatPrompt, GenerateRequest, IdsPrompt, TextPrompt

HEAD_CHARS = 1024
"""About 256 tokens: of a text its start, of a conversation the start of its first question."""

HEAD_IDS = HEAD_CHARS // 4

MAX_SYSTEM_CHARS = 64 << 10


def affinity_key(request: GenerateRequest) -> int:
    """64 bits, equal for requests of one tenant whose prompts begin alike.

    A conversation keeps its key as it grows: what counts is its head, the instructions and the start of the first
    question. So conversations spread over the upstreams even where all have the same instructions, which each upstream
    then holds once, and questions about the same long document meet.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (request.tenant, *_head(request)):
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(4, "little") + data)
    return int.from_bytes(digest.digest(), "little")


def _head(request: GenerateRequest) -> Iterator[str]:
    match request.prompt:
        case TextPrompt(text):
            yield text[:HEAD_CHARS]
        case IdsPrompt(ids):
            yield repr(ids[:HEAD_IDS])
        case ChatPrompt(messages):
            for message in messages:
                is_question = message["role"] == "user"
                yield message["role"]
                yield (message.get("content") or "")[: HEAD_CHARS if is_question else MAX_SYSTEM_CHARS]
                if is_question:
                    return
