"""``*.fake.json``: a scripted model as a file, so that whole processes run without weights.

Every key is optional, unknown keys are refused. Ids 0 ... 255 are bytes, special tokens follow in order::

    {
      "specials": ["<|end|>", "<|user|>"],       special tokens 256, 257, ...    default ["<|end|>"]
      "vocab_size": 300,                         embedding rows                  default 256 + specials
      "eos_ids": [256],                          end tokens; the first ends a scripted reply
      "context_length": 4096,                    default 8192
      "depth": 1,                                steps in flight
      "max_tokens_per_step": 1,                  k
      "cost": {"step_s": 0.001, "token_s": 0.0, "row_s": 0.0},     a step's time, added up
      "default": "letters",                      or "echo" (the prompt again, then the end), or a list of steps
      "replies": [{"match": "weather", "steps": ["It rains", 240, 159, 165, 186, {"pause_s": 2}, "."]}]
    }

A reply answers prompts whose text contains ``match``; the first match counts. A step is a text (one token per UTF-8
byte), a token id, ``{"pause_s": seconds}`` before the next token, ``{"fault": "nan" | "raise" | "kill"}`` in the place
of a token, or ``{"repeat": n, "steps": [...]}``. A reply ends with the first end token; "letters" never end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from tribar.core.errors import BadModelFile
from tribar.runtime.fake.replies import FAULTS, N_BYTES, Reply, ReplyScript, Say, echo, letters
from tribar.runtime.fake.runner import FakeRunner, Pace
from tribar.runtime.fake.script import Script
from tribar.runtime.runner import Int32s
from tribar.runtime.runners import RunnerConfig

SUFFIX = ".fake.json"
MAX_FILE_BYTES = 16 << 20
MAX_REPLY_TOKENS = 1 << 20

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class _Act(msgspec.Struct, forbid_unknown_fields=True):
    pause_s: Seconds | None = None
    fault: str | None = None
    repeat: Count | None = None
    steps: list["str | int | _Act"] = []


class _Reply(msgspec.Struct, forbid_unknown_fields=True):
    match: str
    steps: list[str | int | _Act]


class _Cost(msgspec.Struct, forbid_unknown_fields=True):
    step_s: Seconds = 0.0
    token_s: Seconds = 0.0
    row_s: Seconds = 0.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    specials: list[str] = msgspec.field(default_factory=lambda: ["<|end|>"])
    vocab_size: Count | None = None
    eos_ids: list[int] | None = None
    context_length: Count = 8192
    depth: Count = 1
    max_tokens_per_step: Count = 1
    cost: _Cost | None = None
    default: str | list[str | int | _Act] = "letters"
    replies: list[_Reply] = []


@dataclass(frozen=True, slots=True)
class FakeModel:
    """What a fake model file describes."""

    path: Path
    specials: tuple[str, ...]
    vocab_size: int
    eos_ids: tuple[int, ...]
    context_length: int
    depth: int
    max_tokens_per_step: int
    script: Script
    pace: Pace | None

    def runner(self, config: RunnerConfig) -> FakeRunner:
        """A runner that plays this model, not loaded yet."""
        return FakeRunner(
            config,
            vocab_size=self.vocab_size,
            script=self.script,
            depth=self.depth,
            max_tokens_per_step=self.max_tokens_per_step,
            pace=self.pace,
        )


def is_fake_model(path: Path) -> bool:
    """Whether the path names a fake model file."""
    return path.name.endswith(SUFFIX)


def load_fake_model(path: Path) -> FakeModel:
    """Read and check the file. Raises ``BadModelFile`` naming the file and the key."""
    if not is_fake_model(path):
        raise BadModelFile(f"{path}: the fake runner reads *{SUFFIX} files only")
    file = _read(path)
    n_known = N_BYTES + len(file.specials)
    vocab_size = file.vocab_size or n_known
    eos_ids = tuple(file.eos_ids if file.eos_ids is not None else [N_BYTES])
    if vocab_size < n_known:
        raise BadModelFile(f"{path}: vocab_size {vocab_size} is below 256 bytes + {len(file.specials)} specials")
    if not eos_ids or any(not 0 <= i < vocab_size for i in eos_ids):
        raise BadModelFile(f"{path}: eos_ids {list(eos_ids)} must name at least one id below {vocab_size}")
    if file.depth > 1 and file.max_tokens_per_step > 1:
        raise BadModelFile(f"{path}: depth and max_tokens_per_step cannot both exceed 1")
    return FakeModel(
        path=path,
        specials=tuple(file.specials),
        vocab_size=vocab_size,
        eos_ids=eos_ids,
        context_length=file.context_length,
        depth=file.depth,
        max_tokens_per_step=file.max_tokens_per_step,
        script=_script(path, file, vocab_size, eos_ids[0]),
        pace=_pace(file.cost),
    )


def _read(path: Path) -> _File:
    try:
        if path.exists() and not path.is_file():
            raise BadModelFile(f"{path}: not a regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadModelFile(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise BadModelFile(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadModelFile(f"{path}: {error}") from error


def _script(path: Path, file: _File, vocab_size: int, end_id: int) -> Script:
    def compiled(key: str, match: str, steps: list[str | int | _Act]) -> Reply:
        says = _says(f"{path}: {key}", steps, vocab_size)
        return Reply(match.encode(), tuple(says))

    replies = [compiled(f"replies[{i}]", reply.match, reply.steps) for i, reply in enumerate(file.replies)]
    default: Callable[[Int32s, int], int] = letters
    match file.default:
        case "letters":
            pass
        case "echo":
            default = echo(end_id)
        case list(steps):
            replies.append(compiled("default", "", steps))
        case other:
            raise BadModelFile(f'{path}: default {other!r} is not "letters", "echo" or a list of steps')
    return ReplyScript(replies, default=default, end_id=end_id, vocab_size=vocab_size)


def _says(where: str, steps: list[str | int | _Act], vocab_size: int) -> list[Say]:
    says: list[Say] = []
    pause_s = 0.0
    for step in steps:
        match step:
            case str(text):
                new = [Say(byte) for byte in text.encode()]
            case int(token_id):
                new = [Say(token_id)]
            case _Act(repeat=int(n), pause_s=None, fault=None):
                new = _repeated(where, _says(where, step.steps, vocab_size), n)
            case _Act(fault=str(fault), pause_s=None, repeat=None, steps=[]) if fault in FAULTS:
                new = [Say(fault=fault)]
            case _Act(pause_s=float(seconds), fault=None, repeat=None, steps=[]):
                pause_s += seconds
                continue
            case _:
                faults = ", ".join(sorted(FAULTS))
                raise BadModelFile(f"{where}: a step object is one of pause_s, fault ({faults}), repeat with steps")
        if pause_s and new:
            new[0] = Say(new[0].token_id, pause_s + new[0].pause_s, new[0].fault)
            pause_s = 0.0
        says += new
    if pause_s:
        raise BadModelFile(f"{where}: a pause_s stands before a token, so it cannot be the last step")
    if any(not 0 <= say.token_id < vocab_size for say in says):
        raise BadModelFile(f"{where}: a token id is outside the vocabulary of {vocab_size}")
    return says


def _repeated(where: str, says: list[Say], n: int) -> list[Say]:
    if len(says) * n > MAX_REPLY_TOKENS:
        raise BadModelFile(f"{where}: repeats more than {MAX_REPLY_TOKENS} tokens")
    return says * n


def _pace(cost: _Cost | None) -> Pace | None:
    if cost is None:
        return None
    return Pace(lambda n_tokens, n_rows: cost.step_s + n_tokens * cost.token_s + n_rows * cost.row_s)
