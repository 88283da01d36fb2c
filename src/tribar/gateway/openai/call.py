"""One parsed request of the OpenAI endpoints."""

from collections.abc import Sequence
from dataclasses import dataclass

from tribar.gateway.call import Call
from tribar.gateway.openai.reading.choice_reader import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Shows:
    """What an answer has beside its text.

    ``usage``: a last chunk with it; ``continuous_usage``: every chunk has it. ``tokens_as_ids``: tokens are written as
    ``token_id:5`` in log-probabilities. ``echo``: the prompt comes before the output. ``prompt_logprobs``: how many
    alternatives are reported with each prompt token.
    """

    usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    echo: bool = False
    prompt_logprobs: int | None = None

    def ids(self, token_ids: Sequence[int]) -> dict[str, list[int]]:
        """The field of a choice that has ``token_ids``, where they are shown."""
        return {"token_ids": list(token_ids)} if self.token_ids else {}


@dataclass(frozen=True, slots=True)
class OpenAiCall(Call):
    """What a body of ``/v1/chat/completions`` or ``/v1/completions`` asks for.

    ``reading`` says what an answer may hold beside content.
    """

    shows: Shows = Shows()
    reading: Reading = Reading()

    @property
    def token_field(self) -> str:
        """See ``Call``."""
        if self.shows.token_ids:
            return "return_token_ids"
        return "stream_options.continuous_usage_stats" if self.shows.continuous_usage else ""

    @property
    def shows_prompt(self) -> bool:
        """See ``Call``."""
        return self.shows.echo or self.shows.token_ids
