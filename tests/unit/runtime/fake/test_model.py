"""``*.fake.json`` files: what they say, and what is refused."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import tribar.runtime.fake.model as module
from tribar.core.errors import BadModelFile, Internal
from tribar.runtime.fake.model import FakeModel, load_fake_model
from tribar.runtime.fake.replies import Reply, ReplyScript, Say
from tribar.runtime.runners import RunnerConfig, create_runner


def written(tmp_path: Path, content: Mapping[str, object] | str) -> Path:
    path = tmp_path / "tiny.fake.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def model(tmp_path: Path, **content: object) -> FakeModel:
    return load_fake_model(written(tmp_path, content))


def said(fake: FakeModel, prompt: str, n: int) -> list[int]:
    ids = list(prompt.encode())
    n_prompt = len(ids)
    for _ in range(n):
        answer = fake.script(np.array(ids, dtype=np.int32), n_prompt)
        assert isinstance(answer, int)
        ids.append(answer)
    return ids[n_prompt:]


def test_an_empty_object_is_a_model(tmp_path: Path) -> None:
    fake = model(tmp_path)
    assert (fake.vocab_size, fake.eos_ids, fake.specials, fake.context_length) == (257, (256,), ("<|end|>",), 8192)
    letters = said(fake, "hello", 30)
    assert bytes(letters).decode().islower()
    assert said(fake, "hello", 30) == letters
    assert said(fake, "hellp", 30) != letters


def test_replies_are_chosen_by_what_the_prompt_contains(tmp_path: Path) -> None:
    replies = [
        {"match": "weather", "steps": ["It ", 240, 159, 165, 186]},
        {"match": "w", "steps": [{"repeat": 2, "steps": ["ab", 7]}]},
    ]
    fake = model(tmp_path, replies=replies, default="echo")
    assert said(fake, "the weather?", 9) == [*b"It ", 240, 159, 165, 186, 256, 256]
    assert said(fake, "who", 7) == [*b"ab", 7, *b"ab", 7, 256]
    assert said(fake, "echo", 5) == [*b"echo", 256]


def test_the_documented_example_loads(tmp_path: Path) -> None:
    assert module.__doc__ is not None
    block = module.__doc__.split("::\n\n", 1)[1].split("\n\n", 1)[0]
    fake = load_fake_model(written(tmp_path, re.sub(r"(?<=\S) {2,}.*", "", block)))
    assert (fake.vocab_size, fake.context_length, fake.specials) == (300, 4096, ("<|end|>", "<|user|>"))
    assert bytes(said(fake, "sunny", 40)).islower()


def test_a_default_reply(tmp_path: Path) -> None:
    fake = model(tmp_path, default=["hi"], eos_ids=[9, 256])
    assert said(fake, "anything", 3) == [*b"hi", 9]


def test_the_match_is_sought_in_the_prompt_alone(tmp_path: Path) -> None:
    fake = model(tmp_path, replies=[{"match": "b", "steps": ["x"]}], default=["ab"])
    assert said(fake, "q", 3) == [*b"ab", 256]


def test_pauses_and_faults() -> None:
    slept_s: list[float] = []
    says = (Say(5, pause_s=2.5), Say(fault="nan"), Say(fault="raise"))
    script = ReplyScript([Reply(b"", says)], end_id=0, vocab_size=300, sleep=slept_s.append)
    ids = np.array([1, 2, 3, 4], dtype=np.int32)
    assert script(ids[:1], 1) == 5
    assert slept_s == [2.5]
    assert np.isnan(script(ids[:2], 1)).all()
    with pytest.raises(Internal, match="fail here"):
        script(ids[:3], 1)
    assert script(ids[:4], 1) == 0


def test_pauses_add_up_before_the_next_token(tmp_path: Path) -> None:
    steps = [{"pause_s": 0.001}, {"pause_s": 0.002}, "ab"]
    assert said(model(tmp_path, default=steps), "q", 2) == [*b"ab"]


def test_kill_ends_the_process_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, {"default": [{"fault": "kill"}]})
    code = (
        "import sys, pathlib, numpy\n"
        "from tribar.runtime.fake.model import load_fake_model\n"
        "load_fake_model(pathlib.Path(sys.argv[1])).script(numpy.zeros(1, numpy.int32), 1)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=50, env=env)
    assert done.returncode == -signal.SIGKILL


def test_the_registered_runner_reads_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, {"vocab_size": 300, "max_tokens_per_step": 3, "cost": {"step_s": 0.5, "token_s": 0.25}})
    runner = create_runner("fake", RunnerConfig(model_path=path, n_blocks=9, max_model_len=64))
    info = runner.load()
    assert (info.vocab_size, info.n_blocks, info.max_model_len, info.max_tokens_per_step) == (300, 9, 64, 3)
    pace = load_fake_model(path).pace
    assert pace is not None
    assert pace.step_s(4, 100) == 1.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "tiny.fake.json"),
        ("[]", "tiny.fake.json"),
        ({"replys": []}, "replys"),
        ({"vocab_size": 256}, "vocab_size 256 is below"),
        ({"vocab_size": 10**9}, "vocab_size"),
        ({"eos_ids": []}, "eos_ids"),
        ({"eos_ids": [257]}, "eos_ids"),
        ({"depth": 2, "max_tokens_per_step": 2}, "cannot both exceed 1"),
        ({"default": "loud"}, "default 'loud'"),
        ({"default": [999]}, "default: a token id is outside"),
        ({"default": [{}]}, "default: a step object"),
        ({"default": [{"fault": "explode"}]}, "default: a step object"),
        ({"default": [{"fault": "nan", "pause_s": 1}]}, "default: a step object"),
        ({"default": [{"pause_s": -1}]}, "pause_s"),
        ({"default": ["a", {"pause_s": 1}]}, "default: a pause_s stands before a token"),
        ({"default": [{"repeat": 2, "steps": ["a", {"pause_s": 1}]}, "b"]}, "default: a pause_s stands before a token"),
        ({"default": [{"repeat": 1048576, "steps": ["ab"]}]}, "default: repeats more than"),
        ({"replies": [{"match": "a", "steps": [-1]}]}, r"replies\[0\]: a token id"),
        ({"replies": [{"steps": []}]}, "match"),
        ({"cost": {"step_s": "fast"}}, "step_s"),
    ],
)
def test_bad_files_are_refused_by_key(tmp_path: Path, content: Mapping[str, object] | str, message: str) -> None:
    with pytest.raises(BadModelFile, match=message) as caught:
        load_fake_model(written(tmp_path, content))
    assert "tiny.fake.json" in caught.value.message


def test_missing_and_misnamed_files(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_fake_model(tmp_path / "none.fake.json")
    with pytest.raises(BadModelFile, match=r"\*\.fake\.json files only"):
        load_fake_model(tmp_path / "model.gguf")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe would be waited for, a device read until the memory ends."""
    pipe, device = tmp_path / "pipe.fake.json", tmp_path / "zero.fake.json"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        with pytest.raises(BadModelFile, match="not a regular file"):
            load_fake_model(path)
