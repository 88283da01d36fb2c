"""The tables of the documents say what the code does; both languages have the same ones."""

import re
from collections.abc import Sequence
from dataclasses import fields

import pytest
from prometheus_client import CollectorRegistry
from tests.differential.differences import DIFFERENCES
from tests.documents import code_tables, model_tables
from tests.documents.code_tables import Row
from tests.documents.markdown import DOCUMENTS, ROOT, blocks, read, table_with, tables

from tribar.app.pool_tables import RouteTable, UpstreamTable, model_routes
from tribar.app.settings import OTHER_VARIABLES, load_config
from tribar.telemetry.caching import CacheFamilies, CacheMetrics
from tribar.telemetry.inference import InferenceMetrics
from tribar.telemetry.limits import LimitMetrics
from tribar.telemetry.loop_watchdog import LoopMetrics
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics
from tribar.telemetry.pools import PoolFamilies, PoolMetrics
from tribar.telemetry.upstreams import UpstreamMetrics, UpstreamStates

SERVING = ("docs/serving.md", "docs/serving.zh-CN.md")
MODEL_SERVER = ("docs/model-server.md", "docs/model-server.zh-CN.md")
MODELS = ("docs/models.md", "docs/models.zh-CN.md")


def shown(rows: Sequence[Row]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def check(document: str, expected: Sequence[Row], *, has_prose: bool = True) -> None:
    """The table equals ``expected``, apart from a last column that is prose; every cell of prose says something."""
    rows = table_with(read(document), expected[0][0])
    facts = [row[:-1] if has_prose else row for row in rows]
    assert facts == list(expected), f"{document} should have these rows:\n{shown(expected)}"
    assert all(row[-1] for row in rows)


@pytest.mark.parametrize("document", SERVING)
def test_settings(document: str) -> None:
    check(document, [row[:-1] for row in code_tables.setting_rows()])


@pytest.mark.parametrize("document", SERVING)
def test_other_variables(document: str) -> None:
    named = {row[0].strip("`") for row in table_with(read(document), "`TRIBAR_CONFIG`")}
    assert named == OTHER_VARIABLES


def test_variables_of_the_native_code_are_known() -> None:
    """The server refuses variables with its prefix that it does not know, so these would keep it from starting."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "native/src").rglob("*.cpp")]
    read_there = {name for text in sources for name in re.findall(r'getenv\("(TRIBAR_\w+)"\)', text)}
    assert read_there
    assert read_there <= OTHER_VARIABLES


@pytest.mark.parametrize("document", SERVING)
def test_request_fields(document: str) -> None:
    """Law 4: each known field is implemented or neutral, and the page says which."""
    check(document, code_tables.implemented_field_rows())
    check(document, code_tables.neutral_field_rows(), has_prose=False)


@pytest.mark.parametrize("document", SERVING)
def test_parameters_of_text_generation_inference(document: str) -> None:
    check(document, code_tables.tgi_parameter_rows())


@pytest.mark.parametrize("document", SERVING)
def test_metrics(document: str) -> None:
    check(document, [row[:-1] for row in code_tables.metric_rows()])


@pytest.mark.parametrize("document", SERVING)
def test_errors(document: str) -> None:
    check(document, code_tables.error_rows())
    codes = {row[0].strip("`") for row in table_with(read(document), "`invalid_json`")}
    assert codes == code_tables.error_codes()


@pytest.mark.parametrize("document", SERVING)
def test_limits(document: str) -> None:
    found = [rows for rows in tables(read(document)) if rows[0][1:] == code_tables.limit_rows()[0]]
    assert [row[1:] for rows in found for row in rows] == code_tables.limit_rows()


def test_english_descriptions_are_those_of_the_code() -> None:
    for expected in (code_tables.setting_rows(), code_tables.metric_rows()):
        assert table_with(read(SERVING[0]), expected[0][0]) == expected, shown(expected)


@pytest.mark.parametrize("document", MODEL_SERVER)
def test_differences_from_triton(document: str) -> None:
    rows = [(rule.ours, rule.tritons, rule.why) for rule in DIFFERENCES]
    found = tables(read(document))[-1]
    assert len(found) == len(rows)
    assert found == rows or document.endswith(".zh-CN.md")


@pytest.mark.parametrize("document", MODELS)
def test_models(document: str) -> None:
    text = read(document)
    check(document, model_tables.quantisation_rows(), has_prose=False)
    check(document, model_tables.family_rows())
    for names in model_tables.name_lists():
        assert names in text


@pytest.mark.parametrize("document", MODELS)
def test_refusals_are_quoted_from_the_source(document: str) -> None:
    known = model_tables.messages()
    for _, message in tables(read(document))[-1]:
        pieces = [re.escape(piece) for piece in message.strip("`").split("…")]
        assert re.search("[^\n]*?".join(pieces), known), f"{document}: no source has {message}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_metrics_exist(document: str) -> None:
    registry = CollectorRegistry()
    families = EngineFamilies(registry)
    EngineMetrics(families, "m")
    families.finished.labels("m", "stop")
    families.refused.labels("m", "max_ttft")
    upstreams = UpstreamMetrics(registry)
    upstreams.on_end("u", "ok")
    upstreams.on_retry("u")
    UpstreamStates(registry, tuple, lambda: 0)
    cache = CacheMetrics(CacheFamilies(registry), "m")
    cache.on_bypass("asked")
    cache.on_check("client", is_right=True)
    limits = LimitMetrics(registry)
    limits.on_refusal("requests")
    pool = PoolMetrics(PoolFamilies(registry), "redis")
    pool.on_failure("away")
    LoopMetrics(registry)
    exported = {sample.name for family in registry.collect() for sample in family.samples}
    exported |= {family.name for family in [*registry.collect(), *InferenceMetrics(registry, tuple).describe()]}
    named = set(re.findall(r"\b(?:tribar|nv)_[a-z0-9_]+", read(str(document))))
    assert named <= exported


@pytest.mark.parametrize("document", SERVING)
def test_the_settings_file_loads(document: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    (content,) = blocks(read(document), "toml")
    file = tmp_path_factory.mktemp("settings") / "tribar.toml"
    file.write_text(content)
    config = load_config({}, {}, file)
    assert (config.server.port, config.engine.kv_cache_memory_bytes) == (8080, 2 << 30)


@pytest.mark.parametrize("document", ["docs/gateway.md", "docs/gateway.zh-CN.md"])
def test_the_tables_of_a_pool_load(document: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    (content,) = [block for block in blocks(read(document), "toml") if "[[upstream]]" in block]
    file = tmp_path_factory.mktemp("settings") / "tribar.toml"
    file.write_text(content)
    assert set(model_routes(load_config({}, {}, file).pool_tables)) == {"chat", "ensemble"}
    named = "".join(row[0] for rows in tables(read(document)) for row in rows)
    for table in (UpstreamTable, RouteTable):
        assert all(f"`{item.metadata['key'] or item.name}`" in named for item in fields(table))


TRANSLATED = [path for path in DOCUMENTS if path.name.endswith(".zh-CN.md")]


@pytest.mark.parametrize("document", TRANSLATED, ids=lambda path: path.name)
def test_translations_are_in_step(document: str) -> None:
    texts = [read(name) for name in (str(document).replace(".zh-CN", ""), str(document))]
    fences = [re.findall(r"^```.*?^```", text, flags=re.M | re.S) for text in texts]
    assert fences[0] == fences[1]
    prose = [re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for text in texts]
    levels = [re.findall(r"^#+ ", text, flags=re.M) for text in prose]
    assert levels[0] == levels[1]
    assert [len(rows) for rows in tables(texts[0])] == [len(rows) for rows in tables(texts[1])]
