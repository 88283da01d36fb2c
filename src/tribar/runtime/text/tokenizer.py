"""Text to ids and back, over the ``tokenizers`` library."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import cast

import tokenizers
from tokenizers.pre_tokenizers import Metaspace, PreTokenizer
from tokenizers.pre_tokenizers import Sequence as PreTokenizerSequence

from tribar.core.errors import InvalidRequest
from tribar.runtime.text.control_shield import ControlShield
from tribar.runtime.text.detokenizer import Detokenizer
from tribar.runtime.text.special_finder import SpecialFinder


class Tokenizer:
    """Encodes and decodes for one model. Immutable; safe from several threads.

    Special tokens (BOS, end of turn, ...) have two readings. In text that people typed they are ordinary characters
    (``encode``); in text that a chat template wrote they are control tokens (``encode_control``).

    ``token_bytes[id]`` is the one table from ids to raw bytes: of a special token its own text, of ids without a
    meaning ``b""``. ``strips_leading_space``: the tokenizer puts a space before the first word, which ``decode``
    takes away again. ``bos_id`` is None where the vocabulary has no beginning-of-sequence token; ``adds_bos`` says
    whether ``encode(..., add_special=True)`` starts with it.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        token_bytes: Sequence[bytes],
        special_ids: AbstractSet[int],
        bos_id: int | None = None,
        strips_leading_space: bool = False,
    ) -> None:
        self.token_bytes = tuple(token_bytes)
        self.special_ids = frozenset(special_ids)
        self.bos_id = bos_id
        self.strips_leading_space = strips_leading_space
        self.special_texts = {self.token_bytes[i].decode(): i for i in sorted(self.special_ids)}
        self.shield = ControlShield(self.special_texts)
        self._specials = SpecialFinder(self.special_texts, backend.get_added_tokens_decoder())
        self._longest_bytes = max(map(len, self.token_bytes), default=1)
        self._keeps_length = backend.normalizer is None
        self._control = backend
        self._plain = _typed_twin(backend, backend.pre_tokenizer)
        self._plain_inside = _typed_twin(backend, _without_first_prefix(backend.pre_tokenizer))
        self._unk_id = self._find_unk_id()
        self.adds_bos = bos_id is not None and self._plain.encode("").ids[:1] == [bos_id]

    @property
    def vocab_size(self) -> int:
        """Number of ids the table knows (an embedding may have more rows, for padding)."""
        return len(self.token_bytes)

    def least_tokens(self, text: str) -> int:
        """A number of ids that ``text`` has at the least, found without encoding it; 0 where nothing can be said."""
        return -(-len(text) // self._longest_bytes) if self._keeps_length else 0

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Ids of typed text: special tokens in it stay ordinary characters.

        ``add_special`` adds what the tokenizer's own convention adds around a text (BOS, sometimes EOS).
        Raises ``InvalidRequest`` for text that is not Unicode (lone surrogates).
        """
        return self._checked_plain(self._plain, text, add_special=add_special)

    def encode_control(self, text: str) -> list[int]:
        """Ids of text in which special tokens are real; nothing is added. Raises ``InvalidRequest``."""
        return list(_encode(self._control, text).ids)

    def encode_shielded(self, text: str, restore: Callable[[str], str]) -> list[int]:
        """As ``encode_control``, but ``restore`` is applied to every stretch between special tokens first.

        Whatever ``restore`` brings back is ordinary text, so special tokens in it stay ordinary characters.
        """
        ids: list[int] = []
        start = 0
        for token_text, begin, end in self._specials.find(text):
            ids += self._stretch(restore(text[start:begin]), is_first=start == 0)
            ids.append(self.special_texts[token_text])
            start = end
        return ids + self._stretch(restore(text[start:]), is_first=start == 0)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ``ids``; invalid UTF-8 becomes U+FFFD. Raises ``InvalidRequest`` for ids out of the vocabulary."""
        self.check_ids(ids)
        detokenizer = self.detokenizer(skip_special=skip_special)
        return detokenizer.push(ids) + detokenizer.flush()

    def detokenizer(self, *, skip_special: bool = True, continues: bool = False) -> Detokenizer:
        """A fresh incremental detokenizer. ``continues``: its text follows other text, so no space is dropped."""
        skip_ids = self.special_ids if skip_special else frozenset()
        strips = self.strips_leading_space and not continues
        return Detokenizer(self.token_bytes, skip_ids, strip_leading_space=strips)

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise ``InvalidRequest`` naming the first id that is not in the vocabulary."""
        if ids and (min(ids) < 0 or max(ids) >= self.vocab_size):
            index, wrong = next((i, x) for i, x in enumerate(ids) if not 0 <= x < self.vocab_size)
            message = f"token id {wrong} at index {index} is not in the vocabulary of {self.vocab_size} ids"
            raise InvalidRequest(message, param="prompt")

    def _stretch(self, text: str, *, is_first: bool) -> list[int]:
        if not text:
            return []
        return self._checked_plain(self._plain if is_first else self._plain_inside, text, add_special=False)

    def _checked_plain(self, backend: tokenizers.Tokenizer, text: str, *, add_special: bool) -> list[int]:
        encoding = _encode(backend, text)
        forged = self.special_ids.intersection(encoding.ids) - {self._unk_id}
        if forged:
            token = self.token_bytes[min(forged)].decode()
            raise InvalidRequest(f"this model's tokenizer cannot write {token!r} as ordinary text", param="prompt")
        return list(backend.post_process(encoding).ids if add_special else encoding.ids)

    def _find_unk_id(self) -> int | None:
        unk = getattr(self._control.model, "unk_token", None)
        return self._control.token_to_id(unk) if isinstance(unk, str) else None


def _encode(backend: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    """As a batch of one: the library lets other threads run (releases the GIL) for batches only."""
    try:
        return backend.encode_batch([text], add_special_tokens=False)[0]
    except TypeError as error:  # the library's answer to a str that has no UTF-8 form
        raise InvalidRequest("the text has a lone surrogate, which no encoding can carry", param="prompt") from error
    except Exception as error:
        raise InvalidRequest(f"the tokenizer refused the text: {error}", param="prompt") from error


def _typed_twin(backend: tokenizers.Tokenizer, pre_tokenizer: PreTokenizer | None) -> tokenizers.Tokenizer:
    """The same tokenizer (sharing its model, which is the large part) that takes special tokens for characters."""
    twin = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        twin.normalizer = backend.normalizer
    if pre_tokenizer is not None:
        twin.pre_tokenizer = pre_tokenizer
    if backend.post_processor is not None:
        twin.post_processor = backend.post_processor
    twin.add_tokens([token for _, token in sorted(backend.get_added_tokens_decoder().items())])
    twin.encode_special_tokens = True
    return twin


def _without_first_prefix(pre_tokenizer: PreTokenizer | None) -> PreTokenizer | None:
    """For text that is not at the start: Metaspace's "first" scheme would take each stretch for a start."""
    if isinstance(pre_tokenizer, Metaspace) and pre_tokenizer.prepend_scheme == "first":
        return Metaspace(pre_tokenizer.replacement, prepend_scheme="never", split=pre_tokenizer.split)
    if isinstance(pre_tokenizer, PreTokenizerSequence):
        parts = map(_without_first_prefix, cast(Iterable[PreTokenizer], pre_tokenizer))
        return PreTokenizerSequence([part for part in parts if part is not None])
    return pre_tokenizer
