"""What a scheduler has counted since its start."""

from dataclasses import dataclass

from tribar.engine.sequence import Sequence


@dataclass(slots=True)
class Counters:
    """Only ever growing. Prompts count when they first start; a restart after a preemption does not count again."""

    n_steps: int = 0
    n_prompt_tokens: int = 0
    n_output_tokens: int = 0
    n_prefix_queried: int = 0
    n_prefix_hit: int = 0
    n_preemptions: int = 0

    def count_start(self, sequence: Sequence) -> None:
        """A request started, with ``n_cached`` of its prompt found in the prefix cache."""
        self.n_prompt_tokens += sequence.n_prompt
        if sequence.may_match:
            self.n_prefix_queried += sequence.n_prompt
            self.n_prefix_hit += sequence.n_cached
