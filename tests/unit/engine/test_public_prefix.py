"""Which tokens of a prompt all tenants may share."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.engine.client_rig import byte_text

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt, IdsPrompt, Prompt, TextPrompt
from tribar.engine.public_prefix import PublicPrefix, common_length
from tribar.runtime.text.detokenizer import Detokenizer


@dataclass
class PairText:
    """Two characters that stand in ``merges`` are one token, so a prefix's last token depends on what follows it."""

    merges: frozenset[str]
    has_system: bool = True
    seen: dict[str, int] = field(default_factory=dict)
    end_ids: frozenset[int] = frozenset()
    tokenizer: Any = None

    def encode_prompt(self, prompt: Prompt, max_tokens: int | None = None) -> tuple[int, ...]:
        match prompt:
            case TextPrompt(text):
                return self._ids(text)
            case ChatPrompt(messages):
                if not self.has_system and messages[0]["role"] == "system":
                    raise InvalidRequest("system role not supported")
                return self._ids("".join(f"<{message['role']}>{message['content']}" for message in messages))
            case IdsPrompt(ids):
                return ids

    def _ids(self, text: str) -> tuple[int, ...]:
        ids = []
        while text:
            n = 2 if text[:2] in self.merges else 1
            ids.append(self.seen.setdefault(text[:n], len(self.seen)))
            text = text[n:]
        return tuple(ids)

    def detokenizer(self) -> Detokenizer:
        raise AssertionError


def chat(*turns: tuple[str, str]) -> ChatPrompt:
    return ChatPrompt([{"role": role, "content": content} for role, content in turns])


def test_the_last_token_stays_out_where_it_can_merge_with_what_follows() -> None:
    text = PairText(frozenset({".a", ".b"}))
    prefix = PublicPrefix.of("Hi.", text)
    assert prefix.count(text.encode_prompt(TextPrompt("Hi.b"))) == 2
    assert prefix.count(text.encode_prompt(TextPrompt("Hi. x"))) == 2
    assert prefix.count(text.encode_prompt(TextPrompt("Hx."))) == 1
    assert prefix.count(text.encode_prompt(TextPrompt("x"))) == 0


def test_a_chat_shares_up_to_the_users_text() -> None:
    text = PairText(frozenset())
    prefix = PublicPrefix.of("Hi.", text)
    asked = text.encode_prompt(chat(("system", "Hi."), ("user", "abc")))
    assert prefix.count(asked) == len("<system>Hi.<user>")
    assert prefix.count(text.encode_prompt(chat(("system", "Hi.!"), ("user", "abc")))) == len("<system>Hi.")
    assert prefix.count(text.encode_prompt(chat(("user", "Hi.")))) == 1


def test_a_template_without_system_messages_leaves_the_plain_form() -> None:
    text = PairText(frozenset(), has_system=False)
    assert PublicPrefix.of("Hi.", text).count(text.encode_prompt(TextPrompt("Hi.x"))) == 3


def test_nothing_is_public_without_a_prefix() -> None:
    assert PublicPrefix().count((1, 2)) == 0


def test_bytes_of_the_fake_model() -> None:
    text = byte_text()
    prefix = PublicPrefix.of("Be brief.", text)
    one, two = (text.encode_prompt(chat(("system", "Be brief."), ("user", user))) for user in ("secret", "other"))
    n_public = prefix.count(one)
    assert n_public == common_length(one, two) > len("Be brief.")


@pytest.mark.parametrize("seed", range(20))
def test_never_a_character_of_the_tenants(seed: int) -> None:
    """BUG-030: whatever merges, the public tokens of a prompt cover only characters of the public text."""
    rng = random.Random(seed)
    letters = "ab01. "
    text = PairText(frozenset(rng.choice(letters) + rng.choice(letters) for _ in range(12)))
    for _ in range(50):
        public = "".join(rng.choices(letters, k=rng.randint(1, 12)))
        own = "".join(rng.choices(letters, k=rng.randint(1, 8)))
        prefix = PublicPrefix.of(public, text)
        ids = text.encode_prompt(TextPrompt(public + own))
        words = list(text.seen)
        shared = "".join(words[i] for i in ids[: prefix.count(ids)])
        assert public.startswith(shared)
