"""Where tribar answers otherwise than Triton 2.51 on purpose, for users to read."""

from collections.abc import Set
from dataclasses import dataclass
from fnmatch import fnmatchcase

Result = int | str
"""A status of HTTP or a code of gRPC."""


@dataclass(frozen=True)
class Difference:
    """What we do, what Triton does, and why we do not.

    ``cases`` are patterns of the names of cases that show it: each of them differs, and each call that does has one
    of ``answers``.
    """

    ours: str
    tritons: str
    why: str
    answers: Set[Result]
    cases: tuple[str, ...]

    def covers(self, case: str) -> bool:
        """Whether one of the patterns is the case's."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases)


REFUSED: Set[Result] = frozenset({400, "INVALID_ARGUMENT"})
FINE: Set[Result] = frozenset({200, "OK"})

DIFFERENCES = (
    Difference(
        ours="The server's metadata has tribar's version, and the extensions that tribar has.",
        tritons="Its own version, and also `sequence` and `cuda_shared_memory`.",
        why="A client must be able to tell what it talks to and what it may ask.",
        answers=FINE,
        cases=("metadata",),
    ),
    Difference(
        ours='The server\'s health checks over HTTP have a body: `{"live": true}`, `{"ready": true}`.',
        tritons="An empty one.",
        why="KServe's client reads it; Triton's clients look at the status only.",
        answers=FINE,
        cases=("live", "ready", "path_query"),
    ),
    Difference(
        ours="`/` and `/v1` are answered: they belong to the console and the OpenAI API on the same port.",
        tritons="404.",
        why="One port serves everything.",
        answers=FINE,
        cases=("path_root", "path_v1"),
    ),
    Difference(
        ours="A number outside its input's datatype is refused, naming input and range.",
        tritons="It wraps: 300 as INT8 becomes 44.",
        why="The model would answer a question that nobody asked.",
        answers=REFUSED,
        cases=("*INT8_element_too_*", "*INT16_element_too_large", "INT32_element_too_large", "grpc_int8_out_of_range"),
    ),
    Difference(
        ours="0 and 1 are elements of a BOOL input in JSON, too.",
        tritons="500: only `true` and `false`.",
        why="That is how numpy and many clients write them.",
        answers=FINE,
        cases=("BOOL_element_zero", "BOOL_element_one", "generate_loud_number"),
    ),
    Difference(
        ours="Bytes that are no UTF-8 cannot be had as JSON: the error says to ask for binary data.",
        tritons="It writes them as they are.",
        why="The answer would be no JSON, and no client could read it.",
        answers=REFUSED,
        cases=("BYTES_not_utf8_to_json", "*t_not_utf8", "generate_not_utf8"),
    ),
    Difference(
        ours="Every input that is not optional has to be there.",
        tritons="It counts: with one input too few the model gets None where it expects a tensor.",
        why="The error names the input that is missing.",
        answers=REFUSED,
        cases=("optional_only",),
    ),
    Difference(
        ours="A priority that the model does not have is refused.",
        tritons="It is taken for another one.",
        why="Nobody finds out otherwise that requests are not served in the order that was asked for.",
        answers=REFUSED,
        cases=("priority_of_levels",),
    ),
    Difference(
        ours="A field, a setting or a trace level that does not exist is refused by its name.",
        tritons="It is passed over.",
        why="A field with a typing error would silently have no effect. `parameters` stay open, as KServe v2 has them.",
        answers=REFUSED,
        cases=(
            "body_unknown_*field",
            "index_unknown_field",
            "load_unknown_field",
            "*_set_unknown*",
            "grpc_trace_set_bad_level",
        ),
    ),
    Difference(
        ours="Of two fields of one name in a JSON object the last counts.",
        tritons="The first.",
        why="So do Python and JavaScript; a request is not read twice to find out.",
        answers=FINE,
        cases=("body_duplicate_key",),
    ),
    Difference(
        ours="A body that is not what its Content-Encoding says is refused with 400.",
        tritons="500 where it ends early; an EMPTY body, with an answer of 200, where it is not compressed at all.",
        why="The client's tensor would be lost without a word.",
        answers=REFUSED,
        cases=("compressed_gzip_cut", "compressed_*_not"),
    ),
    Difference(
        ours="A setting with a value that cannot be is refused with 400 and stays as it was.",
        tritons="A trace rate of -5 becomes 4294967291; an unknown log format is 503.",
        why="503 invites clients to try the same again.",
        answers={200, 400},
        cases=("trace_set_rate_negative", "log_set_format_unknown"),
    ),
    Difference(
        ours="Keys of shared memory that lead elsewhere or belong to servers are refused with 400.",
        tritons="500.",
        why="Nothing but the caller's own segments is ever opened.",
        answers=REFUSED,
        cases=("register_key_parent", "register_key_reserved"),
    ),
    Difference(
        ours="A load request with a name, a file or a configuration that cannot be is refused with 400.",
        tritons="500 `failed to poll`, after a look at the disk.",
        why="The request is at fault, and the error says how. What is wrong on disk is 500 here, too.",
        answers=REFUSED,
        cases=(
            "load_name_parent",
            "load_name_inner_parent",
            "load_name_dot",
            "load_name_space",
            "load_name_twice_encoded",
            "load_name_nul",
            "load_name_slash",
            "load_name_absolute",
            "grpc_load_name_[0235678]",
            "load_config_broken",
            "load_config_empty",
            "load_config_unknown_field",
            "load_config_bad_dims",
            "load_config_text_format",
            "load_config_other_name",
            "load_config_of_unknown_model",
            "load_files_without_config",
            "load_file_parent",
            "load_file_inner_parent",
            "load_file_long",
            "load_file_empty_path",
            "grpc_load_file_parent",
        ),
    ),
    Difference(
        ours="The index tells of every model that failed why, and lists those whose files came with the request.",
        tritons="Only the name where the configuration cannot be used, and nothing where there is no version to serve.",
        why="Whoever looks for a model that is missing looks there.",
        answers=FINE,
        cases=(
            "load_broken_enum",
            "load_broken_field",
            "load_broken_latest_zero",
            "load_broken_level_policy",
            "load_broken_name",
            "load_broken_negative_batch",
            "load_broken_no_default_priority",
            "load_broken_no_version",
            "load_broken_preferred*",
            "load_broken_priority",
            "load_broken_syntax",
            "load_broken_two_batchers",
            "load_broken_version",
            "load_files",
        ),
    ),
    Difference(
        ours="A configuration that names an input twice is refused.",
        tritons="It loads.",
        why="No request could ever give both.",
        answers=FINE | REFUSED,
        cases=("load_broken_twice",),
    ),
)


def difference_of(case: str) -> Difference | None:
    """The one that covers the case."""
    return next((difference for difference in DIFFERENCES if difference.covers(case)), None)
