"""A ``ChatModel`` that is a running server (ours or any other with OpenAI's chat API)."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from tribar.app.chat import Message
from tribar.core.errors import InvalidRequest, TribarError, Unavailable

MAX_BODY_BYTES = 1 << 20


class RemoteChat:
    """Talks to ``url`` (``http://host:port``, with or without ``/v1``).

    ``model`` None takes the first model that the server lists. Raises ``InvalidRequest`` for a URL that is none and
    ``Unavailable`` where nobody answers. ``max_tokens`` bounds each answer, ``timeout_s`` the wait for each next piece.
    ``api_key`` goes to this server only, not to where it may redirect.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        temperature: float = 1.0,
        max_tokens: int | None = None,
        api_key: str = "",
        timeout_s: float = 300.0,
    ) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
            raise InvalidRequest(f"not a server's URL: {url!r}\ntry: --url http://127.0.0.1:8000", param="url")
        if not (api_key.isascii() and api_key.isprintable()):
            raise InvalidRequest("the API key has characters that are not printable ASCII", param="api_key")
        self._api_key = api_key
        self._base = url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._model = model or self._first_model()

    def stream_chat(self, messages: Sequence[Message]) -> Generator[str, None, None]:
        """See ``ChatModel``."""
        body: dict[str, object] = {
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "temperature": self._temperature,
        }
        if self._max_tokens is not None:
            body["max_tokens"] = self._max_tokens
        with self._open("/v1/chat/completions", orjson.dumps(body)) as response:
            try:
                for line in response:
                    data = line.removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    if line.startswith(b"data:"):
                        yield _text_of(_json(data))
            except (OSError, http.client.HTTPException) as error:
                raise Unavailable(f"{self._base} broke off: {error}") from error
        raise Unavailable(f"{self._base} broke off before its answer was complete")

    def _first_model(self) -> str:
        with self._open("/v1/models") as response:
            listed = _json(response.read(MAX_BODY_BYTES)).get("data")
        if not listed:
            raise Unavailable(f"{self._base} serves no model")
        return str(listed[0]["id"])

    def _open(self, path: str, body: bytes | None = None) -> Any:  # noqa: ANN401  urllib's response has no public type
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, body, headers)  # noqa: S310  the scheme was checked
        if self._api_key:
            request.add_unredirected_header("Authorization", f"Bearer {self._api_key}")
        try:
            return urllib.request.urlopen(request, timeout=self._timeout_s)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise TribarError(_message_of(error.read(MAX_BODY_BYTES)) or f"HTTP {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"no server answers at {self._base} ({reason})\ntry: tribar serve") from error


def _json(body: bytes) -> dict[str, Any]:
    """The one seam for answers that are not what the API promises."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"the server's answer is not JSON: {body[:80]!r}") from error
    if not isinstance(value, dict):
        raise Unavailable(f"the server's answer is not a JSON object: {body[:80]!r}")
    return value


def _text_of(chunk: dict[str, Any]) -> str:
    """The text of one chunk. An error after the stream began comes as a chunk too (BUG-013)."""
    if "error" in chunk:
        raise TribarError(str(chunk["error"].get("message", "the server failed")))
    choices = chunk.get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""


def _message_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip()
