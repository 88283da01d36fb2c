from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]

class SamplingSpec:
    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Sequence[tuple[int, float]] = ...,
        min_tokens: int = 0,
        suppressed: Sequence[int] = ...,
        seed: int = 0,
    ) -> None: ...
    @property
    def has_penalties(self) -> bool: ...

class TokenCounts:
    def __init__(self, ids: I32, n_prompt: int, capacity: int) -> None: ...
    def add_output(self, id: int) -> None: ...  # noqa: A002

class Sampler:
    def __init__(self, vocab_size: int, level: str = "") -> None: ...
    def sample(
        self, logits: F32, spec: SamplingSpec, counts: TokenCounts | None, output_index: int, mask: U32 | None = None
    ) -> tuple[int, str, bool]: ...
    def token_logprobs(self, logits: F32, token: int, k: int) -> tuple[str, float, list[int], list[float]]: ...

def philox_uniform(seed: int, output_index: int, purpose: int = 0) -> float: ...
