"""One parsed request of any dialect, and what is known of its answer before the first token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from tribar.core.errors import Unsupported
from tribar.core.requests import GenerateRequest, IdsPrompt, Prepared, TextPrompt
from tribar.gateway.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed body: each of ``requests`` (one per prompt) is to be run ``n`` times.

    Choice ``i`` of prompt ``p`` has the index ``p * n + i`` in the answer. A dialect's own class adds what its answers
    show beside the text.
    """

    requests: tuple[GenerateRequest, ...]
    n: int
    stream: bool

    @property
    def shows_prompt(self) -> bool:
        """Whether the answer needs the prompts after its start."""
        return False

    @property
    def token_field(self) -> str:
        """A field of the body that asks to see tokens or to count them as they come; empty where none does."""
        return ""

    def without_prompts(self) -> Self:
        """The same call with nothing left of its prompts."""
        empty = IdsPrompt(())
        return replace(self, requests=tuple(replace(request, prompt=empty) for request in self.requests))


C = TypeVar("C", bound=Call)


@dataclass(frozen=True, slots=True)
class AnswerHead(Generic[C]):
    """What a writer knows before the first Delta.

    ``prepared`` has one entry per choice; when the writer exists it is emptied, unless the call ``shows_prompt``.
    """

    call: C
    prepared: Sequence[Prepared]
    vocabulary: Vocabulary
    answer_id: str
    created_s: int

    @property
    def model(self) -> str:
        """The served name that was asked."""
        return self.call.requests[0].model

    def prompt_ids(self, index: int) -> tuple[int, ...]:
        """The ids of choice ``index``'s prompt. Raises ``Unsupported`` where they stay with an upstream."""
        ids = self.prepared[index].ids
        if ids is None:
            raise Unsupported(f"the model {self.model!r} does not tell its token ids")
        return ids

    def prompt_text(self, index: int) -> str:
        """The prompt of choice ``index`` as text: the caller's own where it was a text and has been used whole."""
        request = self.prepared[index].request
        if isinstance(request.prompt, TextPrompt) and request.truncate_prompt is None:
            return request.prompt.text
        return self.vocabulary.text(self.prompt_ids(index))
