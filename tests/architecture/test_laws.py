"""The laws of docs/architecture.md that can be read off the source. The others are held by tests of behaviour:

1. tests/unit/engine/test_scheduler.py (chunks of any size), tests/contract/test_scheduler_on_fake_runner.py
3. tests/unit/engine/test_scheduler_fuzz.py, test_loop.py, tests/process/test_engine_process.py (a killed engine)
4. tests/unit/gateway/openai/test_requests.py (every field of the API)
5. tests/e2e/test_llm.py, tests/unit/engine/test_client_on_engine.py
7. beside the classes below: every random test under tests/unit/engine calls ``check()`` after each step
8. tests/unit/engine/kv/test_radix.py, tests/contract/, tests/unit/runtime/torch/
11. tests/unit/engine/test_prefix_sharing.py, test_namespaces.py
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribar.core import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/tribar"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
TEST_FILES = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in TREES.items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


def is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.unparse(base) for base in node.bases)


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names


def test_law_2_the_engine_process_loads_no_text() -> None:
    code = "import sys, tribar.engine.process; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    names = set(loaded.stdout.split())
    assert "tribar.engine.scheduler" in names
    forbidden = {"tokenizers", "jinja2", "starlette", "uvicorn", "torch", "tribar.runtime.text", "tribar.gateway"}
    assert not names & forbidden


SUITES = {
    "Runner": ({"launch", "sample", "collect"}, "runner_factories.py"),
    "Channel": ({"send", "receive", "close"}, "lines.py"),
    "EngineEndpoint": ({"poll", "drop", "wake", "close"}, "lines.py"),
    "KvAllocator": ({"admit", "grow", "release", "usage"}, "test_kv_allocator.py"),
    "KeyValueStore": ({"get", "put", "put_if_absent", "delete", "keys"}, "test_key_value_store.py"),
    "Embedder": ({"card", "embed", "close"}, "test_embedder.py"),
    "TextGenerator": ({"card", "prepare", "generate"}, "test_text_generator.py"),
    "Buckets": ({"reserve", "settle", "renew"}, "test_buckets.py"),
    "UsageLedger": ({"add", "totals"}, "test_usage_ledger.py"),
}
"""A seam's verbs, by which its implementations are found, and where its contract suite lists them."""


@pytest.mark.parametrize("seam", SUITES)
def test_law_6_every_implementation_of_a_seam_is_in_its_contract_suite(seam: str) -> None:
    verbs, suite = SUITES[seam]
    text = (ROOT / "tests/contract" / suite).read_text(encoding="utf-8")
    made = [node.name for _, node in classes() if verbs <= methods(node) and not is_protocol(node)]
    assert len(made) >= 2, "a seam has an implementation and a fake, or two implementations"
    covered = [name for name in made if name in text or name.replace("Channel", "Endpoint") in text]
    assert covered == made, f"tests/contract/{suite} leaves out {set(made) - set(covered)}"


@pytest.mark.parametrize(
    "name",
    [
        "BlockPool",
        "RadixTree",
        "RowPool",
        "Residents",
        "Scheduler",
        "PagedKv",
        "PrefixCachedKv",
        "ContiguousKv",
        "Batcher",
        "Meters",
        "ResponseCache",
        "Router",
        "Breaker",
        "Thresholds",
    ],
)
def test_law_7_data_structures_own_a_check(name: str) -> None:
    (found,) = [node for _, node in classes() if node.name == name]
    assert "check" in methods(found)


FOREIGN_RAISES = {
    "AttributeError": {"__init__.py"},
    "ConnectionFault": {"connection.py", "field_block.py", "frame_reader.py", "frames.py", "settings.py"},
    "HTTPException": {"body.py", "middleware.py"},
    "OSError": {"parent.py"},
    "SecurityError": {"template_sandbox.py"},
    "TypeError": {"spec.py"},
    "ValueError": {"option_kinds.py", "stop_strings.py"},
}
"""What another library's hook demands, or what the caller in the same room translates."""

TRITONS_INTERFACE = SOURCE / "modelserver/backends/python/worker"
"""Raises to the code of a ``model.py`` what Triton raises."""


def test_law_9_only_the_one_tree_is_raised() -> None:
    strange = [
        f"{path.name}:{node.lineno} {name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for name in [ast.unparse(node.exc.func)]
        if name[0].isupper()
        and name not in errors.ERRORS_BY_NAME
        and path.name not in FOREIGN_RAISES.get(name, set())
        and not path.is_relative_to(TRITONS_INTERFACE)
    ]
    assert not strange, f"raise a class of core/errors: {strange}"


def test_law_9_the_docstring_draws_the_tree() -> None:
    drawn = dict(re.findall(r"── (\w+) +(\d{3})", errors.__doc__ or ""))
    real = {name: str(kind.status) for name, kind in errors.ERRORS_BY_NAME.items() if name != "TribarError"}
    assert drawn == real
    assert all(400 <= kind.status < 600 and kind.type and kind.grpc_code for kind in errors.ERRORS_BY_NAME.values())


def test_law_10_configuration_is_frozen() -> None:
    loose = [
        f"{path.name}: {node.name}"
        for path, node in classes()
        if re.search(r"(Config|Spec|Facts|Card|Params|Policy|Info|Request|Limits)$", node.name)
        and not is_protocol(node)
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        and not any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert not loose


def test_law_12_no_queue_without_a_bound() -> None:
    unbounded = [
        f"{path.name}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in {"Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"}
        and not (node.args or node.keywords)
    ]
    assert not unbounded


def test_law_13_no_second_generation_and_nothing_half_done() -> None:
    names = [str(path.relative_to(ROOT)) for path in TREES if re.search(r"(_v\d|_old|_new|legacy|compat)", path.stem)]
    assert not names
    marks = re.compile(
        r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "raise NotImplemented" + "Error")) + r")\b"
    )
    marked = [path.name for path in [*TREES, *TEST_FILES] if marks.search(path.read_text(encoding="utf-8"))]
    assert not marked


def test_law_14_hot_rooms_import_neither_pydantic_nor_the_standard_json() -> None:
    hot = {"core", "wire", "engine", "gateway", "telemetry"}
    slow = [path.name for path, tree in TREES.items() if room_of(path) in hot and "json" in imported(tree)]
    assert not slow, f"msgspec and orjson are faster by an order of magnitude: {slow}"
    assert not [path.name for path, tree in TREES.items() if "pydantic" in imported(tree)]


def test_no_globals_and_no_swallowed_exceptions() -> None:
    """``except X: pass`` says nothing; where an exception is an answer, ``contextlib.suppress`` or a return says so."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Global), f"{path.name}:{node.lineno} writes a global"
            if isinstance(node, ast.ExceptHandler) and ast.unparse(node.body[0]) in {"pass", "..."}:
                broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
                assert not broad, f"{path.name}:{node.lineno} swallows whatever goes wrong"


def test_tests_neither_sleep_nor_skip() -> None:
    """A wait is for a condition. ``asyncio.sleep(0)`` only yields; an injected back-off is no wait of a test."""
    forbidden = re.compile(r"time\.sleep\(|mark\.(skip|xfail)|pytest\.(skip|xfail|importorskip)\(")
    guilty = [path.name for path in TEST_FILES if forbidden.search(path.read_text(encoding="utf-8"))]
    assert not guilty
