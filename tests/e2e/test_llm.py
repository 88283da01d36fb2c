"""``tribar.LLM`` over scripted models: the offline batch is the server's engine and client (law 5)."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.server_process import write_model

import tribar
from tribar.core.errors import BadModelFile, InvalidRequest, Unavailable
from tribar.core.requests import FinishReason
from tribar.core.sampling.params import Wants


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def llm(model: str) -> Iterator[tribar.LLM]:
    with tribar.LLM(model, max_num_seqs=4) as made:
        yield made


def test_one_prompt_and_many(llm: tribar.LLM) -> None:
    (one,) = llm.generate("hello")
    assert (one.text, one.finish_reason, one.usage.prompt_tokens) == ("hello", FinishReason.STOP, 5)
    assert bytes(one.token_ids) == b"hello"
    texts = [f"text {i}" for i in range(100)]
    seen: list[int] = []
    assert [generation.text for generation in llm.generate(texts, on_done=seen.append)] == texts
    assert seen == list(range(1, 101))
    assert llm.generate([]) == []


def test_ids_as_prompts(llm: tribar.LLM) -> None:
    assert [generation.text for generation in llm.generate([104, 105])] == ["hi"]
    assert [generation.text for generation in llm.generate([[104], [105]])] == ["h", "i"]


def test_encoding(llm: tribar.LLM) -> None:
    assert llm.encode("hi") == (104, 105)
    assert bytes(llm.encode([{"role": "user", "content": "hi"}])) == b"user: hi\nassistant: "


def test_fields_and_sampling_params(llm: tribar.LLM) -> None:
    params = tribar.SamplingParams(temperature=0)
    (cut,) = llm.generate("hello", params, max_tokens=3, wants=Wants(logprobs=2))
    assert (cut.text, cut.finish_reason, len(cut.logprobs)) == ("hel", FinishReason.LENGTH, 3)
    (stopped,) = llm.generate("hello", params, stop=("ll",))
    assert stopped.text == "he"


def test_chats(llm: tribar.LLM) -> None:
    fish = [{"role": "user", "content": "fish"}]
    assert [generation.text for generation in llm.chat(fish)] == ["A fish: \N{FISH}."]
    assert len(llm.chat([fish, fish, fish])) == 3


def test_streams(llm: tribar.LLM) -> None:
    deltas = list(llm.stream("a fish"))
    assert "".join(delta.text for delta in deltas) == "A fish: \N{FISH}."
    assert [delta.finish is not None for delta in deltas].count(True) == 1
    endless = llm.stream("endless")
    assert next(endless).text
    endless.close()
    assert llm.generate("after it")[0].text == "after it"


def test_errors_are_raised_and_leave_the_engine_usable(llm: tribar.LLM) -> None:
    with pytest.raises(InvalidRequest, match="5000 tokens"):
        llm.generate(["fine", "x" * 5000, "fine"])
    with pytest.raises(InvalidRequest, match="empty"):
        llm.generate("")
    with pytest.raises(InvalidRequest, match="seed is -1; it must be an integer from 0"):
        llm.generate("fine", tribar.SamplingParams(seed=-1))
    assert llm.generate("still here")[0].text == "still here"


def test_close_ends_open_calls(model: str) -> None:
    llm = tribar.LLM(model)
    stream = llm.stream("endless")
    next(stream)
    raised: list[BaseException] = []
    has_begun = threading.Event()

    def generate() -> None:
        try:
            for _ in llm.stream("endless"):
                has_begun.set()
        except Unavailable as error:
            raised.append(error)

    worker = threading.Thread(target=generate)
    worker.start()
    has_begun.wait(20)
    llm.close()
    worker.join(20)
    assert len(raised) == 1
    with pytest.raises(Unavailable, match="closed"):
        next(stream)
    with pytest.raises(Unavailable, match="closed"):
        llm.generate("x")
    llm.close()


def test_options_are_checked_by_name(model: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="did you mean max_num_seqs"):
        tribar.LLM(model, max_num_sqs=3)
    broken = tmp_path / "broken.fake.json"
    broken.write_text("{")
    with pytest.raises(BadModelFile, match="broken"):
        tribar.LLM(str(broken))


def test_a_program_that_forgets_to_close_still_ends(model: str) -> None:
    code = f"import tribar; llm = tribar.LLM({model!r}); print(llm.generate('bye')[0].text)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "bye\n", "")


def test_importing_tribar_loads_nothing_heavy() -> None:
    code = (
        "import sys, tribar; tribar.__version__;"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in {'numpy', 'torch', 'starlette', 'msgspec'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nothing"):
        tribar.nothing  # noqa: B018


def test_an_answer_follows_a_grammar(llm: tribar.LLM) -> None:
    """The scripted model would echo its prompt."""
    grammar = tribar.Grammar(tribar.GrammarKind.REGEX, "[0-9]{3}")
    (answer,) = llm.generate("hello", grammar=grammar)
    assert re.fullmatch("[0-9]{3}", answer.text)
    assert answer.finish_reason is FinishReason.STOP
    with pytest.raises(InvalidRequest, match="look-around") as caught:
        llm.generate("hello", grammar=tribar.Grammar(tribar.GrammarKind.REGEX, "(?=a)a"))
    assert caught.value.param == "grammar"
    with pytest.raises(InvalidRequest, match="must be a Grammar"):
        llm.generate("hello", grammar="[0-9]")
