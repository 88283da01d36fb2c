"""What a Python model is given, and what becomes of what it returns. The texts are a real Triton's (2.51)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from tests.process.modelserver.python_models import Answers, asked, opened, run, said, tensor

from tribar.core.errors import (
    Cancelled,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    TribarError,
    Unavailable,
    Unsupported,
)
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.python.instance import PythonInstance

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL_FAILED = "Failed to process the request(s) for model 'lab_0', message: "


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(repository: Path) -> AsyncIterator[PythonInstance]:
    async with opened(repository) as instance:
        yield instance


async def test_initialize_gets_tritons_arguments(lab: PythonInstance, repository: Path) -> None:
    arguments = json.loads(await said(lab, "answer = [say(json.dumps(self.args))]"))
    config = json.loads(arguments.pop("model_config"))
    assert config["name"] == "lab"
    assert config["input"][1]["data_type"] == "TYPE_FP32"
    assert arguments == {
        "model_instance_kind": "CPU",
        "model_instance_device_id": "0",
        "model_instance_name": "lab_0",
        "model_repository": str(repository / "lab"),
        "model_version": "1",
        "model_name": "lab",
    }


async def test_a_batch_is_answered_in_its_order(lab: PythonInstance) -> None:
    batch = [asked("answer = [say(r.request_id()) for r in requests]") for _ in range(5)]
    for i, answers in enumerate(batch):
        answers.request = InferRequest(model_name="lab", id=f"q{i}", inputs=answers.request.inputs)
    execution = await run(lab, *batch)
    assert [answers.said for answers in batch] == [[f"q{i}"] for i in range(5)]
    assert 0 < execution.input_end_ns <= execution.output_start_ns


async def test_a_request_tells_what_its_caller_said(lab: PythonInstance) -> None:
    code = (
        "r = requests[0]\n"
        "answer = [say(json.dumps([r.request_id(), r.correlation_id(), sorted(r.requested_output_names()), r.flags(),"
        " json.loads(r.parameters()), r.timeout(), r.priority(), r.model_name(), r.model_version()]))]"
    )
    answers = Answers(
        InferRequest(
            model_name="lab",
            id="q",
            inputs=asked(code).request.inputs,
            parameters={"a": 1, "b": "x", "c": True, "d": 0.5},
            priority=2,
            timeout_us=77,
            sequence_id="s",
            sequence_start=True,
            sequence_end=True,
        )
    )
    await run(lab, answers)
    assert json.loads(answers.said[0]) == [
        "q", "s", ["OUT", "Y"], 3, {"a": 1, "b": "x", "c": True, "d": 0.5}, 77, 2, "lab", 1,
    ]  # fmt: skip


@pytest.mark.parametrize("size", [3, 0, 100_000])
async def test_an_input_is_the_models_own(lab: PythonInstance, size: int) -> None:
    """It may write into it and keep it: a later batch changes nothing in it."""
    keep = "t = requests[0].inputs()[1]; a = t.as_numpy(); a += 1; self.kept.append(a); answer = [say(t.shape())]"
    look = "answer = [say([float(a.sum()) for a in self.kept])]"
    await said(lab, "self.kept = []; answer = [say(1)]")
    for value in (1.0, 5.0):
        assert await said(lab, keep, X=np.full(size, value, np.float32)) == f"[{size}]"
    assert await said(lab, look) == str([2.0 * size, 6.0 * size])


async def test_inputs_have_tritons_types(lab: PythonInstance) -> None:
    code = (
        "a, b = [t.as_numpy() for t in requests[0].inputs()]\n"
        "answer = [say([str(a.dtype), type(a[0]).__name__, str(b.dtype), a.flags.writeable, b.flags.writeable])]"
    )
    assert await said(lab, code, X=np.zeros(2, np.float16)) == str(["object", "bytes", "float16", True, True])


@pytest.mark.parametrize("n_elements", [4, 100_000])
async def test_bf16_goes_by_dlpack(lab: PythonInstance, n_elements: int) -> None:
    code = (
        "t = requests[0].inputs()[1]\n"
        "u = pb_utils.Tensor.from_dlpack('Y', t)\n"
        "v = pb_utils.Tensor.from_dlpack('Y', u.to_dlpack())\n"
        "answer = [pb_utils.InferenceResponse([v])] if v.triton_dtype() == 14 else None"
    )
    bits = np.arange(n_elements).astype(np.uint16)
    answers = Answers(
        InferRequest(model_name="lab", inputs=[*asked(code).request.inputs, Tensor("B", DataType.BF16, bits)])
    )
    await run(lab, answers)
    output = answers.outputs[0]["Y"]
    assert output.datatype is DataType.BF16
    np.testing.assert_array_equal(output.data, bits)


async def test_bf16_has_no_numpy_form(lab: PythonInstance) -> None:
    bits = Tensor("B", DataType.BF16, np.zeros(2, np.uint16))
    answers = Answers(
        InferRequest(model_name="lab", inputs=[*asked("requests[0].inputs()[1].as_numpy()").request.inputs, bits])
    )
    await run(lab, answers)
    assert "Tensor dtype is BF16 and cannot be converted to NumPy." in answers.error.message


OUTPUTS = {
    "strided": ("np.arange(10, dtype=np.float32)[::2]", np.arange(0, 10, 2, dtype=np.float32)),
    "column order": ("np.asfortranarray(np.arange(6.).reshape(2, 3))", np.arange(6.0).reshape(2, 3)),
    "another type than configured": ("np.zeros(2, np.int32)", np.zeros(2, np.int32)),
    "no elements": ("np.zeros((2, 0), np.float32)", np.zeros((2, 0), np.float32)),
    "no dimensions": ("np.array(3.5, np.float32)", np.array(3.5, np.float32)),
    "bool": ("np.array([True, False])", np.array([True, False])),
    "large": ("np.arange(1_000_000, dtype=np.float32)", np.arange(1_000_000, dtype=np.float32)),
    "large and strided": ("np.arange(200_000)[::-2]", np.arange(200_000)[::-2]),
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_outputs_arrive_as_they_are(lab: PythonInstance, name: str) -> None:
    expression, expected = OUTPUTS[name]
    answers = asked(f"answer = [pb_utils.InferenceResponse([pb_utils.Tensor('Y', {expression})])]")
    await run(lab, answers)
    output = answers.outputs[0]["Y"]
    assert output.data.dtype == expected.dtype
    np.testing.assert_array_equal(output.data, expected)


TEXTS = {
    "np.array(['h\\u00e9', b'\\xff\\x00'], object)": ["h\u00e9".encode(), b"\xff\x00"],
    "np.array([b'ab\\x00', b'x'])": [b"ab", b"x"],
    "np.array([1, None, 2.5], object)": [b"1", b"None", b"2.5"],
    "np.zeros(0, object)": [],
    "np.array(['a' * 100_000], object)": [b"a" * 100_000],
}


@pytest.mark.parametrize("expression", TEXTS)
async def test_texts_become_bytes(lab: PythonInstance, expression: str) -> None:
    """BUG-068: byte-exact both ways, NUL and what is no UTF-8 included."""
    answers = asked(f"answer = [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', {expression})])]")
    await run(lab, answers)
    assert answers.outputs[0]["OUT"].data.tolist() == TEXTS[expression]


REFUSED_TENSORS = {
    "pb_utils.Tensor('Y', np.zeros(3, '>f4'))": "TritonModelException: NumPy dtype is not supported.",
    "pb_utils.Tensor('Y', np.zeros(3, complex))": "TritonModelException: NumPy dtype is not supported.",
    "pb_utils.Tensor('Y', np.array(['a']))": "TritonModelException: NumPy dtype is not supported.",
    "pb_utils.Tensor('', np.zeros(3))": "TritonModelException: Tensor name cannot be an empty string.",
    "pb_utils.Tensor('Y', [1.0])": "TypeError: Tensor(name, array) takes a str and a numpy.ndarray, not str and list",
    "requests[0].inputs()[0].to_dlpack()": "TritonModelException: DLPack does not have support for string tensors.",
}


@pytest.mark.parametrize("expression", REFUSED_TENSORS)
async def test_tensors_that_cannot_be(lab: PythonInstance, expression: str) -> None:
    answers = asked(expression)
    await run(lab, answers)
    assert answers.error.message.startswith(MODEL_FAILED + REFUSED_TENSORS[expression])


RETURNED = {
    "5": "Expected a list in the execute return, found type '<class 'int'>'.",
    "(say(1),)": "Expected a list in the execute return, found type '<class 'tuple'>'.",
    "[]": "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
    "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
    "['x']": "Expected an 'InferenceResponse' object in the execute function return list, "
    "found type '<class 'str'>'.",
    "[pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(1)), pb_utils.Tensor('Y', np.zeros(2))])]":
    "TritonModelException: the response has two tensors named 'Y'",
}  # fmt: skip


@pytest.mark.parametrize("expression", RETURNED)
async def test_what_execute_must_not_return(lab: PythonInstance, expression: str) -> None:
    answers = asked(f"answer = {expression}")
    await run(lab, answers)
    assert await said(lab, "answer = [say('alive')]") == "alive"
    assert isinstance(answers.error, Internal)
    assert answers.error.message == MODEL_FAILED + RETURNED[expression]


@pytest.mark.parametrize("returned", ["None", "[None]"])
async def test_a_request_without_an_answer_fails(lab: PythonInstance, returned: str) -> None:
    """A real Triton lets the caller wait for ever."""
    answers = asked(f"answer = {returned}")
    await run(lab, answers)
    assert answers.error.message == "the model 'lab_0' dropped the request without a final response"


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
async def test_an_exception_fails_its_batch_only(lab: PythonInstance, repository: Path, raised: str, text: str) -> None:
    batch = [asked(raised), asked()]
    await run(lab, *batch)
    assert await said(lab, "answer = [say('alive')]") == "alive"
    place = f"\n\nAt:\n  <string>(1): <module>\n  {repository}/lab/1/model.py(14): execute\n"
    assert [answers.error.message for answers in batch] == [MODEL_FAILED + text + place] * 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNKNOWN", InvalidRequest),
        ("INTERNAL", Internal),
        ("NOT_FOUND", NotFound),
        ("INVALID_ARG", InvalidRequest),
        ("UNAVAILABLE", Unavailable),
        ("UNSUPPORTED", Unsupported),
        ("ALREADY_EXISTS", Conflict),
        ("CANCELLED", Cancelled),
    ],
)
async def test_an_error_response_has_its_code(lab: PythonInstance, code: str, kind: type[TribarError]) -> None:
    bad = f"pb_utils.InferenceResponse(error=pb_utils.TritonError('bad', pb_utils.TritonError.{code}))"
    batch = [asked(f"answer = [{bad}, say('good')]"), asked()]
    await run(lab, *batch)
    assert type(batch[0].error) is kind
    assert batch[0].error.message == "bad"
    assert batch[1].said == ["good"]


async def test_only_wanted_and_known_outputs_are_sent(lab: PythonInstance) -> None:
    code = (
        "y, nope = (pb_utils.Tensor(n, np.zeros(1, np.float32)) for n in ('Y', 'NOPE'))\n"
        "answer = [pb_utils.InferenceResponse([*say(1).output_tensors(), y, nope], parameters={'p': 1})]"
    )
    all_of_them = asked(code)
    one = Answers(InferRequest(model_name="lab", inputs=all_of_them.request.inputs, outputs=["Y"]))
    await run(lab, all_of_them)
    await run(lab, one)
    assert [list(answers.outputs[0]) for answers in (all_of_them, one)] == [["OUT", "Y"], ["Y"]]
    assert all_of_them.parameters == [{"p": 1}]


async def test_files_beside_the_model_can_be_imported(tmp_path: Path) -> None:
    source = (
        "import beside\nfrom .beside import WORD\nimport triton_python_backend_utils as pb_utils\nimport numpy as np\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        text = f'{beside.WORD} {WORD} {pb_utils.get_model_dir()}'\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([text], object))])]\n"
    )
    (tmp_path / "lab/1").mkdir(parents=True)
    (tmp_path / "lab/1/beside.py").write_text("WORD = 'hello'")
    (tmp_path / "lab/1/model.py").write_text(source)
    async with opened(tmp_path, source) as instance:
        assert await said(instance, "") == f"hello hello {tmp_path}/lab/1"


async def test_a_large_tensor_is_whole(lab: PythonInstance) -> None:
    """64 MB both ways, in a batch with small ones; the memory is used again."""
    array = np.arange(16 * 2**20, dtype=np.float32)
    code = "answer = [pb_utils.InferenceResponse([pb_utils.Tensor('Y', r.inputs()[-1].as_numpy())]) for r in requests]"
    for _ in range(2):
        batch = [asked(code, X=array), Answers(InferRequest(model_name="lab", inputs=[tensor("X", array[:3])]))]
        await run(lab, *batch)
        np.testing.assert_array_equal(batch[0].outputs[0]["Y"].data, array)
        np.testing.assert_array_equal(batch[1].outputs[0]["Y"].data, array[:3])
