"""What a request may ask of the sampler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn. Validated at the edge; a runner trusts it.

    Order of application (DESIGN section 5): bias, penalties, mask, temperature, min-p, top-k, top-p.

    ``temperature`` 0 means argmax (ties to the lowest id). ``top_k`` 0 is off. ``top_p`` in (0, 1], ``min_p`` in
    [0, 1]. ``presence_penalty`` and ``frequency_penalty`` count generated tokens only; ``repetition_penalty``
    (> 0) counts prompt and generated tokens. ``logit_bias`` pairs are sorted by id; at or below -100 bans a token.
    Ids in ``suppressed`` cannot be drawn while fewer than ``min_tokens`` tokens have been generated.
    ``seed`` is a uint64. None asks the engine client for a random one, so a runner always sees a number.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    suppressed: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Wants:
    """What a row wants back beside its tokens.

    ``logprobs``: number of alternatives reported with each drawn token (0 = the drawn token alone, None = nothing).
    ``prompt_logprobs``: the same for each prompt token after the first. ``hidden``: the last hidden state.
    All log-probabilities are of the raw distribution, before any step of sampling.
    """

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The chosen token's log-probability and the ``k`` likeliest ids, likeliest first, ties to the lowest id."""

    token_id: int
    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()
