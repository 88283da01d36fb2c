"""The repository's index, loading and unloading, overrides of configuration and files, broken models, odd names."""

import base64
import json
from typing import Any

from tests.differential.case import Case, Grpc, Http, case
from tests.differential.cases.requests import infer, post, tensor
from tests.differential.repository_facts import REPOSITORY, broken_models

HANGS = "broken_no_file"
"""The real server never answers its load; see ``fatal``."""
BROKEN = [name for name in broken_models() if name != HANGS]
FP = tensor("FP32", [1, 2], [1, 2])
CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 3,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
MODEL = base64.b64encode((REPOSITORY / "identity_fp32" / "1" / "model.py").read_bytes()).decode()


def verb(model: str, name: str, content: Any = "") -> Http:
    return post(f"/v2/repository/models/{model}/{name}", content)


def load(model: str, **parameters: Any) -> Http:
    return verb(model, "load", {"parameters": parameters} if parameters else "")


def unload(model: str, **parameters: Any) -> Http:
    return verb(model, "unload", {"parameters": parameters} if parameters else "")


def afresh(model: str) -> tuple[Http, Http]:
    """Leaves a configuration that came with a request; a load alone keeps it."""
    return unload(model), load(model)


def index(*names: str) -> Http:
    return Http("POST", "/v2/repository/index", entries=names)


def config_of(model: str) -> Http:
    return Http("GET", f"/v2/models/{model}/config")


def grpc_load(model: str, **parameters: Any) -> Grpc:
    return Grpc("RepositoryModelLoad", ({"model_name": model, "parameters": parameters},))


def grpc_unload(model: str) -> Grpc:
    return Grpc("RepositoryModelUnload", ({"model_name": model},))


def of_broken(model: str) -> Case:
    return case(
        f"load_{model}",
        load(model),
        grpc_load(model),
        Http("GET", f"/v2/models/{model}/ready"),
        index(model),
        infer("identity_fp32", FP),
        unload(model),
    )


ODD_NAMES = {
    "unknown": "nonesuch",
    "parent": "..%2Fetc",
    "parent_plain": "../etc",
    "inner_parent": "a%2F..%2Fsimple",
    "dots": "..",
    "dot": ".",
    "space": "%20",
    "twice_encoded": "%252e%252e%252fetc",
    "starts_with_dots": "..my_model",
    "dots_inside": "model..1",
    "empty": "",
    "nul": "a%00b",
    "slash": "simple%2F1",
    "absolute": "%2Ftmp",
}
GRPC_ODD_NAMES = ["", "nonesuch", "../etc", "a/../simple", "..", ".", " ", "simple/1", "/tmp", "model..1"]
CONFIG_OVERRIDES: dict[str, Any] = {
    "broken": "{bad",
    "number": 5,
    "empty": "",
    "unknown_field": json.dumps(CONFIG | {"nope": 1}),
    "bad_dims": json.dumps(CONFIG | {"max_batch_size": -1}),
    "text_format": 'backend: "python"',
    "other_name": json.dumps(CONFIG | {"name": "another"}),
}

CASES = [
    *(of_broken(model) for model in BROKEN),
    case(
        "index",
        index("simple", "versions_all", "versions_odd"),
        Grpc("RepositoryIndex", entries=("simple", "versions_all")),
    ),
    case(
        "index_ready",
        Http("POST", "/v2/repository/index", b'{"ready": true}', entries=("simple", "versions_all", "broken_field")),
    ),
    case("index_ready_word", post("/v2/repository/index", {"ready": "yes"})),
    case("index_broken_body", post("/v2/repository/index", "{bad")),
    case("index_unknown_field", Http("POST", "/v2/repository/index", b'{"nope": 1}', entries=("simple",))),
    case("index_named_repository", Http("POST", "/v2/repository/nonesuch/index", entries=("simple",))),
    case("grpc_index_named_repository", Grpc("RepositoryIndex", ({"repository_name": "nonesuch"},))),
    case("grpc_index_ready", Grpc("RepositoryIndex", ({"ready": True},), entries=("simple", "broken_field"))),
    *(case(f"load_name_{name}", load(path)) for name, path in ODD_NAMES.items()),
    *(case(f"unload_name_{name}", unload(path)) for name, path in ODD_NAMES.items()),
    *(case(f"grpc_load_name_{number}", grpc_load(name)) for number, name in enumerate(GRPC_ODD_NAMES)),
    case("grpc_unload_unknown", grpc_unload("nonesuch")),
    case(
        "unload_and_load",
        unload("identity_uint8"),
        Http("GET", "/v2/models/identity_uint8/ready"),
        Http("GET", "/v2/models/identity_uint8"),
        Http("GET", "/v2/models/identity_uint8/config"),
        Http("GET", "/v2/models/identity_uint8/stats"),
        infer("identity_uint8", tensor("UINT8", [1, 1], [1])),
        unload("identity_uint8"),
        load("identity_uint8"),
        load("identity_uint8"),
        infer("identity_uint8", tensor("UINT8", [1, 1], [1])),
        index("identity_uint8"),
    ),
    case(
        "grpc_unload_and_load",
        grpc_unload("identity_uint16"),
        Grpc("ModelReady", ({"name": "identity_uint16"},)),
        grpc_load("identity_uint16"),
        Grpc("ModelReady", ({"name": "identity_uint16"},)),
    ),
    case(
        "load_config_override",
        load("identity_uint32", config=json.dumps(CONFIG)),
        config_of("identity_uint32"),
        infer("identity_uint32", FP),
        load("identity_uint32"),
        config_of("identity_uint32"),
        *afresh("identity_uint32"),
        config_of("identity_uint32"),
    ),
    *(
        case(
            f"load_config_{name}",
            load("identity_uint32", config=text),
            config_of("identity_uint32"),
        )
        for name, text in CONFIG_OVERRIDES.items()
    ),
    case(
        "load_config_of_unknown_model",
        load("made_up", config=json.dumps(CONFIG)),
        unload("made_up"),
    ),
    case(
        "load_files",
        load("made_up", config=json.dumps(CONFIG), **{"file:1/model.py": MODEL}),
        infer("made_up", FP),
        index("made_up"),
        unload("made_up"),
        index("made_up"),
    ),
    case("load_files_without_config", load("made_up", **{"file:1/model.py": MODEL}), unload("made_up")),
    case(
        "load_files_other_version",
        load("versions_default", config=json.dumps(CONFIG), **{"file:5/model.py": MODEL}),
        Http("GET", "/v2/models/versions_default"),
        load("versions_default"),
        Http("GET", "/v2/models/versions_default"),
    ),
    *(
        case(
            f"load_file_{name}",
            load("made_up", config=json.dumps(CONFIG), **{f"file:{path}": content}),
            unload("made_up"),
        )
        for name, path, content in [
            ("parent", "../../evil.py", MODEL),
            ("absolute", "/tmp/evil.py", MODEL),
            ("inner_parent", "1/../../evil.py", MODEL),
            ("long", "1/" + "x" * 256, MODEL),
            ("empty_path", "", MODEL),
            ("not_base64", "1/model.py", "!!!"),
            ("number", "1/model.py", 5),
        ]
    ),
    case(
        "load_config_twice",
        load("identity_uint32", config=json.dumps(CONFIG)),
        load("identity_uint32", config=json.dumps(CONFIG | {"max_batch_size": 4})),
        config_of("identity_uint32"),
        *afresh("identity_uint32"),
    ),
    case("load_unknown_parameter", load("identity_uint32", nope="x"), config_of("identity_uint32")),
    case("load_broken_body", verb("identity_uint32", "load", "{bad")),
    case("load_parameters_list", verb("identity_uint32", "load", {"parameters": []})),
    case("load_unknown_field", verb("identity_uint32", "load", {"nope": 1})),
    case("load_named_repository", post("/v2/repository/nonesuch/models/simple/load", "")),
    case("unload_dependents", unload("identity_fp64", unload_dependents=True), load("identity_fp64")),
    case("unload_dependents_word", unload("identity_fp64", unload_dependents="x"), load("identity_fp64")),
    case(
        "grpc_load_config_override",
        grpc_load("identity_int16", config={"string_param": json.dumps(CONFIG)}),
        config_of("identity_int16"),
        *afresh("identity_int16"),
    ),
    case("grpc_load_config_wrong_kind", grpc_load("identity_int16", config={"int64_param": "1"})),
    case("grpc_load_unknown_parameter", grpc_load("identity_int16", nope={"string_param": "x"})),
    case(
        "grpc_load_file_parent",
        grpc_load(
            "made_up", config={"string_param": json.dumps(CONFIG)}, **{"file:../../evil.py": {"bytes_param": MODEL}}
        ),
        grpc_unload("made_up"),
    ),
    case(
        "grpc_load_files",
        grpc_load(
            "made_up", config={"string_param": json.dumps(CONFIG)}, **{"file:1/model.py": {"bytes_param": MODEL}}
        ),
        infer("made_up", FP),
        grpc_unload("made_up"),
    ),
]
