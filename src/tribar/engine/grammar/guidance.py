"""The seam to llguidance (guidance-ai/llguidance, MIT): compiling grammars, and its errors as ours.

Forced tokens are switched off (``no_forcing``): they would need the model's tokenizer, and the engine has none. So a
mask holds every token that some valid text begins with, however the tokenizer would cut it.
"""

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from tribar.core.errors import Internal, InvalidRequest, TooLarge
from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_SOURCE_BYTES = 64 * 2**10

MAX_GBNF_CHARS = 16 * 2**10
"""A GBNF grammar is translated in Python, which is slow; larger ones can be written in Lark."""

MAX_WHITESPACE = 32
"""White space in a row between two tokens of JSON: enough to indent, and a model in a rut gets out of it."""

_NO_FORCING = '\n%llguidance {"no_forcing": true}'
_FAULTY = frozenset({"ParserTooComplex", "LexerTooComplex", "InternalError"})
_MAX_REASON_CHARS = 500
_QUOTE = re.compile(r"\n\s*\d+ \|")
_PLACE = re.compile(r"^(?:at )?\d+\(\d+\): ")


def is_installed() -> bool:
    """Whether llguidance can be imported."""
    return find_spec("llguidance") is not None


def make_tokenizer(vocabulary: Vocabulary) -> "LLTokenizer":
    """llguidance's view of ``vocabulary``, which has end ids. A fraction of a second for 50,000 tokens."""
    # Where RUST_BACKTRACE is set, each rule that an error passes through would walk the whole stack again: minutes.
    os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
    from llguidance import LLTokenizer, TokenizerWrapper

    end_ids = sorted(vocabulary.end_ids)
    table = _Table(vocabulary, end_ids[0])
    return LLTokenizer(TokenizerWrapper(table), n_vocab=len(table.tokens), eos_token=end_ids)


def compile_grammar(tokenizer: "LLTokenizer", grammar: Grammar) -> "LLMatcher":
    """A matcher at the start of ``grammar``, its first mask computed once so that its tables are warm.

    Raises ``InvalidRequest`` without a ``param``, saying why the grammar cannot be followed. Takes milliseconds for
    ordinary grammars and at most about a second for the worst that the limits let through; releases the GIL. To be
    called with a deep stack (``compiler.STACK_BYTES``) unless the source is known to be harmless.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(tokenizer, _lark(grammar), log_level=0, limits=_limits())
    reason = fault_of(matcher)
    if not reason:
        matcher.compute_bitmask()
        reason = fault_of(matcher)
    if reason:
        raise InvalidRequest(reason if grammar.kind is GrammarKind.LARK else _PLACE.sub("", reason))
    return matcher


def fault_of(matcher: "LLMatcher") -> str:
    """Why ``matcher`` cannot go on; empty if it can. Without the source that llguidance quotes behind its reason."""
    if not matcher.is_error() and matcher.stop_reason() not in _FAULTY:
        return ""
    reason = _QUOTE.split(matcher.get_error().replace("<non-verbose/>", ""))[0].strip()
    if reason in {"", "NoExtensionBias"}:  # what is left of an internal error when nothing can be generated
        return "no text matches it"
    return reason[:_MAX_REASON_CHARS]


class _Table:
    """What llguidance's ``TokenizerWrapper`` wants to see of a tokenizer; it never encodes here."""

    def __init__(self, vocabulary: Vocabulary, end_id: int) -> None:
        self.eos_token_id = end_id
        self.bos_token_id: int | None = None
        self.tokens: Sequence[bytes] = vocabulary.token_bytes
        self.special_token_ids = sorted(vocabulary.special_ids | vocabulary.end_ids)

    def __call__(self, _text: bytes) -> list[int]:
        raise Internal("the engine has no tokenizer")


def _limits() -> "LLParserLimits":
    """Bounds on one grammar's memory, its compilation and each of its masks. Measured; see docs/log.md."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=500_000,
        step_lexer_fuel=100_000,
        step_max_items=10_000,
        max_lexer_states=25_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def _lark(grammar: Grammar) -> str:
    if len(grammar.source) > MAX_SOURCE_BYTES or len(grammar.source.encode()) > MAX_SOURCE_BYTES:
        raise TooLarge(f"a grammar or schema may have {MAX_SOURCE_BYTES >> 10} KiB")
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return f"start: %json {_schema(grammar.source)}{_NO_FORCING}"
        case GrammarKind.REGEX:
            from llguidance import regex_to_lark

            return f"start: /{regex_to_lark(grammar.source)}/{_NO_FORCING}"
        case GrammarKind.LARK:
            return grammar.source + _NO_FORCING
        case GrammarKind.GBNF:
            return _from_gbnf(grammar.source) + _NO_FORCING


def _from_gbnf(source: str) -> str:
    """llama.cpp's grammar language as Lark."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    if len(source) > MAX_GBNF_CHARS:
        raise InvalidRequest(f"a GBNF grammar may have {MAX_GBNF_CHARS} characters; write a larger one in Lark")
    try:
        return gbnf_to_lark(source)
    except Exception as error:  # the library raises bare exceptions
        reason = " ".join(str(error).split())[:200]
        raise InvalidRequest(f"this is not a GBNF grammar: {reason}") from error


def _schema(source: str) -> str:
    """The schema in one line, with bounded white space unless it says otherwise itself."""
    try:
        schema: Any = msgspec.json.decode(source)
        if isinstance(schema, dict):
            schema.setdefault("x-guidance", {"whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{MAX_WHITESPACE}}}"})
        return msgspec.json.encode(schema).decode()
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"the schema is not valid JSON: {error}") from error
