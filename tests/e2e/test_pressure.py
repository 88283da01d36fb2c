"""Requests at the edges of what a server holds: its context, and a KV cache far too small for its clients."""

import random
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from tests.e2e.server_process import Server, serving, write_model


def complete(client: openai.OpenAI, prompt: str, max_tokens: int | None = None) -> openai.types.Completion:
    return client.completions.create(model="tiny", prompt=prompt, max_tokens=max_tokens)


def n_preemptions(server: Server) -> float:
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tribar_num_preemptions_total"))


def test_prompts_of_every_length_around_the_context(tmp_path: Path) -> None:
    """BUG-019: each one token more or less is either served to the end or refused with the numbers."""
    limit = 48
    with serving(str(write_model(tmp_path, default="letters", replies=[], context_length=limit))) as server:
        client = server.client()
        for n_prompt in range(limit - 6, limit + 4):
            room = limit - n_prompt
            for max_tokens in (None, 1, 3, 6):
                if room >= (max_tokens or 1):
                    answer = complete(client, "x" * n_prompt, max_tokens)
                    assert len(answer.choices[0].text) == (max_tokens or room)
                    assert answer.choices[0].finish_reason == "length"
                    continue
                with pytest.raises(openai.BadRequestError) as refused:
                    complete(client, "x" * n_prompt, max_tokens)
                assert refused.value.code == "context_length_exceeded"
                assert str(limit) in refused.value.message
                assert str(n_prompt) in refused.value.message
                assert not re.search(r"-\d", refused.value.message)
        with pytest.raises(openai.BadRequestError, match="10000"):
            complete(client, "x" * 10_000)
        assert complete(client, "fine", 2).usage is not None
        client.close()


@pytest.mark.parametrize("max_num_seqs", ["1", "32"])
def test_alone_and_among_31_others_the_answers_are_equal(tmp_path: Path, max_num_seqs: str) -> None:
    """BUG-031, BUG-032, BUG-035: in a KV cache that holds two or three of them, so that all the time one must leave."""
    model = str(write_model(tmp_path, default="letters", replies=[], context_length=128))
    cramped = ("--max-model-len", "128", "--kv-cache-memory", "15360", "--max-num-seqs", max_num_seqs)
    prompts = [f"prompt {i} " * random.Random(i).randint(1, 5) for i in range(32)]
    with serving(model, *cramped) as server, server.client() as client:

        def ask(prompt: str) -> str:
            return str(complete(client, prompt, 60).choices[0].text)

        alone = [ask(prompt) for prompt in prompts]
        assert len(set(alone)) == 32
        with ThreadPoolExecutor(32) as crowd:
            assert list(crowd.map(ask, prompts)) == alone
        assert (n_preemptions(server) > 0) == (max_num_seqs == "32")
