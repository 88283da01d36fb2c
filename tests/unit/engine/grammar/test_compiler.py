import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.engine.grammar.languages import END, OTHER_END, vocabulary

from tribar.core.errors import Internal, InvalidRequest, Overloaded, RateLimited, TribarError, Unsupported
from tribar.core.ids import Uid
from tribar.core.requests import Grammar
from tribar.core.sampling.params import SamplingParams
from tribar.engine.grammar import compiler as room
from tribar.engine.grammar.base import Constraint
from tribar.engine.grammar.compiler import MAX_JOBS, MAX_TENANT_JOBS, GrammarCompiler
from tribar.engine.grammar.guidance import compile_grammar
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.wire.messages import Submit

TABLE = vocabulary(0, frozenset({b"x"}))


def submit(
    number: int,
    grammar: str = "regex:guided_regex:a+",
    stop_ids: tuple[int, ...] = (END, OTHER_END),
    tenant: str = "",
) -> Submit:
    return Submit(Uid(1, number), b"\0\0\0\0", SamplingParams(), 4, stop_ids=stop_ids, grammar=grammar, tenant=tenant)


class Rig:
    def __init__(self, table: Vocabulary = TABLE) -> None:
        self.woken = threading.Semaphore(0)
        self.compiler = GrammarCompiler(table, self.woken.release)

    def outcomes(self, *numbers: int) -> dict[int, Constraint | TribarError]:
        """Of these requests, once all of them are there."""
        wanted = {Uid(1, number) for number in numbers}
        found: dict[int, Constraint | TribarError] = {}
        while len(found) < len(numbers):
            assert self.woken.acquire(timeout=30)
            found |= {uid.counter: outcome for uid, outcome in self.compiler.ready(wanted)}
        return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.compiler.close()


class Gate:
    """Stands for ``compile_grammar`` and holds the worker until opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._compile = compile_grammar
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.sources: list[str] = []
        monkeypatch.setattr(room, "compile_grammar", self)

    def __call__(self, tokenizer: Any, grammar: Grammar) -> Any:
        self.sources.append(grammar.source)
        self.entered.release()
        assert self.open.wait(30)
        return self._compile(tokenizer, grammar)


def test_the_second_request_for_a_grammar_is_free(rig: Rig) -> None:
    assert rig.compiler.request(submit(1)) is None
    first = rig.outcomes(1)[1]
    again = rig.compiler.request(submit(2, "regex:structured_outputs.regex:a+"))
    assert again is not None
    assert again is not first
    assert again.param == "structured_outputs.regex"
    assert again.mask()[3] & (1 << (ord("a") - 96))


def chain(n_rules: int, last: str, name: str = "r", n_groups: int = 0) -> str:
    """A rule that is the next rule, and so on to the ``last``."""
    left, right = "(" * n_groups, ")" * n_groups
    links = [f"{name}{i}:{left}{name}{i + 1}{right}" for i in range(n_rules)]
    return "\n".join([f"lark:guided_grammar:start: {name}0", *links, f"{name}{n_rules}: {last}"])


def schema_chain(n_references: int) -> str:
    definitions = ",".join(f'"{i}":{{"items":{{"$ref":"#/$defs/{i + 1}"}}}}' for i in range(n_references))
    return f'json_schema:response_format:{{"$defs":{{{definitions},"{n_references}":{{}}}},"$ref":"#/$defs/0"}}'


@pytest.mark.parametrize(
    "grammar",
    [chain(4800, '"a"'), chain(1000, '"a"', n_groups=25), chain(4800, '"a"', "R"), schema_chain(1500)],
    ids=["rules", "groups", "terminals", "schema"],
)
def test_what_nests_as_deep_as_a_source_is_long_does_not_end_the_process(rig: Rig, grammar: str) -> None:
    """llguidance recurses, and an overflow of the stack is a crash of the whole engine."""
    assert rig.compiler.request(submit(1, grammar)) is None
    outcome = rig.outcomes(1)[1]
    assert not isinstance(outcome, TribarError)
    assert outcome.mask().any()
    assert not outcome.error


def test_an_error_below_many_rules_is_told_soon(rig: Rig) -> None:
    """Also where RUST_BACKTRACE is set, when llguidance would take minutes to note all the rules it passed through."""
    code = "from tests.unit.engine.grammar.test_compiler import complain; complain()"
    environment = {**os.environ, "RUST_BACKTRACE": "1"}
    environment.pop("RUST_LIB_BACKTRACE", None)
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout == 'guided_grammar: at 2002(8): unknown name: "nowhere"\n', ran.stderr


def complain() -> None:
    """Print the error of a grammar that is wrong in its last rule; to be run in a process of its own."""
    rig = Rig()
    rig.compiler.request(submit(1, chain(2000, "nowhere")))
    outcome = rig.outcomes(1)[1]
    rig.compiler.close()
    assert isinstance(outcome, InvalidRequest)
    print(outcome.message)


def test_requests_for_one_grammar_share_a_job(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    for number in range(5):
        assert rig.compiler.request(submit(number)) is None
    gate.open.set()
    outcomes = rig.outcomes(*range(5))
    assert gate.sources == ["a+"]
    assert len({id(outcome) for outcome in outcomes.values()}) == 5


def test_the_end_tokens_of_a_request_that_ignores_them_are_barred(rig: Rig) -> None:
    rig.compiler.request(submit(1, stop_ids=()))
    constraint = rig.outcomes(1)[1]
    assert not isinstance(constraint, TribarError)
    constraint.accept(ord("a"))
    assert constraint.mask()[END // 32] == 0
    both = rig.compiler.request(submit(2))
    assert both is not None
    both.accept(ord("a"))
    assert both.mask()[END // 32] == 0b11


def test_a_bad_grammar_is_refused_under_the_name_of_its_field(rig: Rig) -> None:
    rig.compiler.request(submit(1, 'json_schema:response_format:{"type":"foo"}'))
    rig.compiler.request(submit(2, 'json_schema:guided_json:{"type":"foo"}'))
    outcomes = rig.outcomes(1, 2)
    for number, param in ((1, "response_format"), (2, "guided_json")):
        error = outcomes[number]
        assert isinstance(error, InvalidRequest)
        assert error.param == param
        assert error.message.startswith(f"{param}: ")
        assert "Invalid type: foo" in error.message


def test_a_panic_of_the_library_is_our_fault(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object) -> None:
        raise PanicException

    monkeypatch.setattr(room, "compile_grammar", panic)
    rig.compiler.request(submit(1))
    assert isinstance(rig.outcomes(1)[1], Internal)


def test_jobs_are_bounded_and_given_up_when_nobody_waits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    for number in range(MAX_JOBS):
        rig.compiler.request(submit(number, f"regex:guided_regex:a{number}", tenant=f"t{number // MAX_TENANT_JOBS}"))
    with pytest.raises(Overloaded):
        rig.compiler.request(submit(99, "regex:guided_regex:b"))
    assert rig.compiler.request(submit(100, "regex:guided_regex:a0")) is None, "a shared job costs nothing"
    assert gate.entered.acquire(timeout=30)
    assert rig.compiler.ready({Uid(1, 5)}) == []
    assert rig.compiler.request(submit(99, "regex:guided_regex:b")) is None
    gate.open.set()
    outcomes = rig.outcomes(5, 99)
    assert set(outcomes) == {5, 99}
    assert gate.sources == ["a0", "a5", "b"], "what had not begun never ran"


def test_one_tenant_may_not_fill_the_worker(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its share it is refused by name; grammars that others wait for cost it nothing, and others come in."""
    gate = Gate(monkeypatch)
    for number in range(MAX_TENANT_JOBS):
        assert rig.compiler.request(submit(number, f"regex:guided_regex:a{number}", tenant="flood")) is None
    with pytest.raises(RateLimited, match="guided_json: 8 of your grammars") as caught:
        rig.compiler.request(submit(100, "json_schema:guided_json:{}", tenant="flood"))
    assert caught.value.param == "guided_json"
    assert caught.value.retry_after_s
    assert rig.compiler.request(submit(101, "json_schema:guided_json:{}", tenant="other")) is None
    assert rig.compiler.request(submit(102, "json_schema:guided_json:{}", tenant="flood")) is None
    gate.open.set()
    rig.outcomes(*range(MAX_TENANT_JOBS), 101, 102)
    assert rig.compiler.request(submit(103, "regex:guided_regex:c", tenant="flood")) is None


def test_an_engine_without_grammars_refuses_by_name_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without_end = Rig(Vocabulary((b"a",)))
    monkeypatch.setattr(room, "is_installed", lambda: False)
    without_package = Rig()
    for made in (without_end, without_package):
        with pytest.raises(Unsupported, match="pip install llguidance") as caught:
            made.compiler.request(submit(1))
        assert caught.value.param == "guided_regex"
        made.compiler.close()


def test_where_nobody_has_a_key_only_the_total_counts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody is the tenant "" there, so its share would be everybody's bound."""
    gate = Gate(monkeypatch)
    for number in range(MAX_TENANT_JOBS + 1):
        assert rig.compiler.request(submit(number, f"regex:guided_regex:a{number}")) is None
    gate.open.set()
    rig.outcomes(*range(MAX_TENANT_JOBS + 1))
