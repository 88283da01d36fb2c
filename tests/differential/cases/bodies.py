"""Bodies and headers of HTTP: raw form, its header length, compression, content types, lengths."""

import gzip
import json
import zlib

from tests.differential.case import Http, case
from tests.differential.cases.requests import infer_binary, raw, wanted

PATH = "/v2/models/identity_fp32/infer"
CONTENT = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
BODY = json.dumps(CONTENT).encode()
LARGE = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 5000], "data": [1] * 5000}]}
).encode()
GIVEN = raw("FP32", [1, 2], [1, 2])
HEADER = "Inference-Header-Content-Length"


def binary(size: object, body: bytes, shape: tuple[int, ...] = (1, 2), datatype: str = "FP32") -> Http:
    """A request whose ``binary_data_size`` and tensor need not agree."""
    given = {"name": "INPUT0", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [given]}).encode()
    path = PATH if datatype == "FP32" else "/v2/models/identity_bytes/infer"
    return Http("POST", path, head + body, {HEADER: str(len(head))})


def chunked(body: bytes, size: int) -> bytes:
    """A body in chunks of ``size``."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


CASES = [
    *(
        case(f"header_length_{name}", infer_binary("identity_fp32", GIVEN, header_length=length))
        for name, length in {
            "huge": "99999999999",
            "negative": "-1",
            "word": "x",
            "zero": "0",
            "short": "20",
            "padded": " 5 ",
            "fraction": "5.5",
            "empty": " ",
            "overflow": "99999999999999999999999",
        }.items()
    ),
    case("header_length_of_whole", Http("POST", PATH, BODY, {HEADER: str(len(BODY))})),
    case("header_length_beyond", Http("POST", PATH, BODY, {HEADER: str(len(BODY) + 1)})),
    case("header_length_lower_case", Http("POST", PATH, BODY, {HEADER.lower(): str(len(BODY))})),
    case("binary_size_small", binary(4, bytes(8))),
    case("binary_size_large", binary(16, bytes(8))),
    case("binary_size_wrong_but_there", binary(16, bytes(16))),
    case("binary_size_negative", binary(-8, bytes(8))),
    case("binary_size_word", binary("8", bytes(8))),
    case("binary_size_fraction", binary(8.5, bytes(8))),
    case("binary_size_zero", binary(0, b"")),
    case("binary_rest", binary(8, bytes(12))),
    case("binary_missing", binary(8, b"")),
    case("binary_zero_columns", binary(0, b"", (1, 0))),
    case("binary_overflow", binary(8, bytes(8), (2**4, 2**60 + 2))),
    case("binary_BYTES_prefix_beyond", binary(6, b"\xff\x00\x00\x00ab", (1, 1), "BYTES")),
    case("binary_BYTES_prefix_cut", binary(3, b"\x01\x00\x00", (1, 1), "BYTES")),
    case("binary_BYTES_too_few", binary(5, b"\x01\x00\x00\x00a", (1, 2), "BYTES")),
    case("binary_BYTES_too_many", binary(10, b"\x01\x00\x00\x00a" * 2, (1, 1), "BYTES")),
    case("raw_body_only", Http("POST", PATH, bytes(8), {HEADER: "0"})),
    case("raw_body_unaligned", Http("POST", PATH, bytes(7), {HEADER: "0"})),
    case("raw_body_of_two_inputs", Http("POST", "/v2/models/simple/infer", bytes(64), {HEADER: "0"})),
    case("raw_body_of_text", Http("POST", "/v2/models/identity_bytes/infer", b"hello", {HEADER: "0"})),
    case("raw_body_of_fixed_shape", Http("POST", "/v2/models/fixed_fp32/infer", bytes(24), {HEADER: "0"})),
    case("raw_body_two_unknown_dims", Http("POST", "/v2/models/two_fp32/infer", bytes(24), {HEADER: "0"})),
    case("body_empty", Http("POST", PATH)),
    case("body_empty_fixed_shape", Http("POST", "/v2/models/fixed_fp32/infer")),
    case(
        "mixed_raw_and_json",
        Http(
            "POST",
            "/v2/models/simple/infer",
            (
                head := json.dumps(
                    {
                        "inputs": [
                            {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": [1] * 16},
                            {
                                "name": "INPUT1",
                                "datatype": "INT32",
                                "shape": [1, 16],
                                "parameters": {"binary_data_size": 64},
                            },
                        ]
                    }
                ).encode()
            )
            + bytes(64),
            {HEADER: str(len(head))},
        ),
    ),
    case("json_and_raw_for_one", Http("POST", PATH, BODY + bytes(8), {HEADER: str(len(BODY))})),
    *(
        case(f"content_type_{name}", Http("POST", PATH, BODY, {"Content-Type": kind}))
        for name, kind in {
            "json": "application/json",
            "json_charset": "application/json; charset=utf-8",
            "text": "text/plain",
            "octets": "application/octet-stream",
            "form": "application/x-www-form-urlencoded",
            "odd": "x",
        }.items()
    ),
    case("content_type_absent", Http("POST", PATH, BODY)),
    *(
        case(f"compressed_{name}", Http("POST", PATH, body, {"Content-Encoding": encoding}))
        for name, encoding, body in [
            ("gzip", "gzip", gzip.compress(BODY, mtime=0)),
            ("deflate", "deflate", zlib.compress(BODY)),
            ("gzip_cut", "gzip", gzip.compress(BODY, mtime=0)[:-12]),
            ("gzip_not", "gzip", BODY),
            ("deflate_not", "deflate", BODY),
            ("gzip_as_deflate", "deflate", gzip.compress(BODY, mtime=0)),
            ("identity", "identity", BODY),
            ("br", "br", BODY),
            ("gzip_empty", "gzip", b""),
            ("twice", "gzip, gzip", gzip.compress(gzip.compress(BODY, mtime=0), mtime=0)),
        ]
    ),
    *(
        case(f"accept_{name}", Http("POST", PATH, body, {"Accept-Encoding": accepted}))
        for name, accepted, body in [
            ("gzip", "gzip", LARGE),
            ("deflate", "deflate", LARGE),
            ("both", "gzip, deflate", LARGE),
            ("weighted", "gzip;q=0.1, deflate;q=0.9", LARGE),
            ("not_gzip", "gzip;q=0", LARGE),
            ("any", "*", LARGE),
            ("br", "br", LARGE),
            ("gzip_small", "gzip", BODY),
        ]
    ),
    case(
        "compressed_both_ways_raw",
        Http(
            "POST",
            PATH,
            gzip.compress((call := infer_binary("identity_fp32", GIVEN)).body, mtime=0),
            {**call.headers, "Content-Encoding": "gzip", "Accept-Encoding": "gzip"},
        ),
    ),
    case("chunked", Http("POST", PATH, chunked(BODY, 7), {"Transfer-Encoding": "chunked"})),
    case("chunked_one_byte", Http("POST", PATH, chunked(LARGE, 1), {"Transfer-Encoding": "chunked"})),
    case(
        "large_to_binary",
        infer_binary("identity_fp32", raw("FP32", [1, 20000], [0.5] * 20000), outputs=[wanted(binary_data=True)]),
    ),
]
