"""Many prompts at once in this process, without a server: the engine batches them continuously.

python examples/offline_batch.py [MODEL]
"""

import sys

import tribar

PROMPTS = [f"The capital of {country} is" for country in ("France", "Japan", "Kenya", "Peru")]


def main() -> None:
    """Print one line for each prompt, in order."""
    with tribar.LLM(*sys.argv[1:2]) as llm:
        params = tribar.SamplingParams(temperature=0)
        for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, params, max_tokens=8), strict=True):
            print(f"{prompt}{answer.text!r} ({answer.usage.completion_tokens} tokens, {answer.finish_reason})")


if __name__ == "__main__":
    main()
