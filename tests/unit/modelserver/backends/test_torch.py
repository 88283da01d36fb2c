"""The PyTorch backend where it differs from others (``tests/contract/test_backend.py`` has what all do)."""

import io
import json
import pickle
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.torch_models import ANY_ROWS_AND_COLUMNS, Identity, Scaled, write_exported
from tests.unit.modelserver.backends.instance_rig import asked, completed, opened, spec_of

from tribar.core.errors import BadModelFile, Internal, InvalidRequest, Unsupported
from tribar.core.tensors import DataType
from tribar.modelserver.backends.model_thread import ModelThread
from tribar.modelserver.backends.torch import TorchBackend, TorchNetwork

BACKEND = TorchBackend()
SCALED = """max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: 3 } input { name: "scale" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT__1" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 3 }"""


def write_scaled(file: Path) -> None:
    rows = {0: torch.export.Dim.DYNAMIC}
    write_exported(file, Scaled(), (torch.zeros(2, 3), torch.ones(2, 1)), (rows, rows))


def write_torchscript(file: Path, module: torch.nn.Module) -> None:
    file.parent.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), file)


def test_an_exported_program_tells_its_tensors(tmp_path: Path) -> None:
    write_scaled(tmp_path / "m/1/model.pt2")
    config = completed(BACKEND, tmp_path / "m/1")
    assert config.max_batch_size == 4
    assert [(each.name, list(each.dims)) for each in config.input] == [("x", [3]), ("scale", [1])]
    assert [(each.name, list(each.dims)) for each in config.output] == [("OUTPUT__0", [3]), ("OUTPUT__1", [1])]
    with pytest.raises(InvalidRequest, match=r"\[-1, 4\] with the batch dimension here and \[-1, 3\]"):
        completed(BACKEND, tmp_path / "m/1", SCALED.replace("dims: 3", "dims: 4", 1))


@pytest.mark.parametrize("file", ["model.pt", "model.pt2"])
@pytest.mark.parametrize("names", [("x", "scale"), ("scale", "x"), ("SOME__0", "OTHER__1"), ("first", "second")])
async def test_names_find_their_places(file: str, names: tuple[str, str], tmp_path: Path) -> None:
    if file == "model.pt":
        write_torchscript(tmp_path / "m/1/model.pt", Scaled())
    else:
        write_scaled(tmp_path / "m/1/model.pt2")
    dims = {"scale": 1, "OTHER__1": 1, "second": 1}
    inputs = "".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: {dims.get(name, 3)} }}' for name in names)
    config = f"max_batch_size: 4 {inputs} output {SCALED.partition('output')[2]}"
    x, scale = np.array([[1, 2, 3]], np.float32), np.array([[10]], np.float32)
    arrays = {name: scale if name in dims else x for name in names}
    async with opened(BACKEND, tmp_path / "m/1", config) as instance:
        for answer in await asked(instance, arrays, arrays):
            assert answer.outputs["OUTPUT__0"].tolist() == [[10, 20, 30]]
            assert answer.outputs["OUTPUT__1"].tolist() == [[6]]
        (one,) = await asked(instance, arrays, wanted=[["OUTPUT__1"]])
        assert list(one.outputs) == ["OUTPUT__1"]


async def test_bf16_and_what_is_read_only(tmp_path: Path) -> None:
    """BUG-071."""
    write_exported(tmp_path / "m/1/model.pt2", Identity(), (torch.zeros(2, 3, dtype=torch.bfloat16),))
    array = np.array([[0x3F80, 0x7FC0, 0x8000]], np.uint16)
    array.flags.writeable = False
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        (answer,) = await asked(instance, {"INPUT0": array})
    assert answer.datatypes == {"OUTPUT0": DataType.BF16}
    np.testing.assert_array_equal(answer.outputs["OUTPUT0"], array)


async def test_what_pytorch_says_is_told(tmp_path: Path) -> None:
    write_torchscript(tmp_path / "m/1/model.pt", Scaled())
    config = SCALED.replace("dims: 1 }", "dims: -1 }", 1)
    async with opened(BACKEND, tmp_path / "m/1", config) as instance:
        good = {"x": np.ones((1, 3), np.float32), "scale": np.ones((1, 1), np.float32)}
        bad = {"x": np.ones((1, 3), np.float32), "scale": np.ones((1, 2), np.float32)}
        (answer,) = await asked(instance, bad)
        assert isinstance(answer.error, Internal)
        assert "must match the size" in answer.error.message
        (after,) = await asked(instance, good)
        assert after.error is None


def test_torchscript_needs_named_tensors(tmp_path: Path) -> None:
    write_torchscript(tmp_path / "m/1/model.pt", Scaled())
    with pytest.raises(InvalidRequest, match="TorchScript tells no types"):
        completed(BACKEND, tmp_path / "m/1")


def test_strings_are_refused(tmp_path: Path) -> None:
    write_torchscript(tmp_path / "m/1/model.pt", Scaled())
    with pytest.raises(Unsupported, match="'x': PyTorch has no tensors of strings"):
        completed(BACKEND, tmp_path / "m/1", SCALED.replace("TYPE_FP32", "TYPE_STRING", 1))


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.file), "w")


def changed(file: Path, changes: dict[str, bytes]) -> None:
    """The archive ``file`` with entries added or replaced."""
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(entries)).partition("/")[0]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (entries | {f"{root}/{name}": content for name, content in changes.items()}).items():
            archive.writestr(name, content)


def bomb(target: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save((Bomb(target),), buffer)
    return buffer.getvalue()


def test_no_pickle_is_run(tmp_path: Path) -> None:
    target, file = tmp_path / "exploded", tmp_path / "m/1/model.pt2"
    pickled = {"path_name": "tensor_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    opaque = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": None}
    config = "data/constants/model_constants_config.json"
    constants = json.dumps({"config": {"c": opaque}}).encode()
    for changes in (
        {"data/sample_inputs/model.pt": bomb(target)},
        {"data/constants/model.pt": bomb(target)},
        {"data/weights/model.pt": bomb(target)},
        {config: json.dumps({"config": {"c": pickled}}).encode(), "data/constants/tensor_0": bomb(target)},
        {
            config: json.dumps({"config": {"c": opaque}}).encode(),
            "data/constants/opaque_obj_0": pickle.dumps(Bomb(target)),
        },
        {config: constants, "data/constants/tensor_0": b""},
        {"data/aotinductor/model/code.so": b"\x7fELF"},
    ):
        write_scaled(file)
        changed(file, changes)
        with pytest.raises((BadModelFile, Unsupported)):
            completed(BACKEND, tmp_path / "m/1")
        assert not target.exists()


def test_a_pickled_module_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "m/1/model.pt"
    file.parent.mkdir(parents=True)
    torch.save(Scaled(), file)
    with pytest.raises(Unsupported, match=r"pickled module.*torch\.export\.save"):
        completed(BACKEND, tmp_path / "m/1", SCALED)
    for content in (pickle.dumps(Bomb(tmp_path / "exploded")), b""):
        file.write_bytes(content)
        with pytest.raises(BadModelFile, match=r"model\.pt: no archive that PyTorch writes"):
            completed(BACKEND, tmp_path / "m/1", SCALED)
    assert not (tmp_path / "exploded").exists()


def test_dimensions_that_vary_are_free(tmp_path: Path) -> None:
    write_exported(tmp_path / "m/1/model.pt2", Identity(), dynamic_shapes=(ANY_ROWS_AND_COLUMNS,))
    assert list(completed(BACKEND, tmp_path / "m/1").input[0].dims) == [-1]


async def test_each_instance_has_its_share_of_the_threads(tmp_path: Path) -> None:
    write_scaled(tmp_path / "m/1/model.pt2")
    specs = [spec_of(BACKEND, tmp_path / "m/1", n_threads=n_threads) for n_threads in (1, 3)]
    threads = [await ModelThread.opened(spec.name, partial(TorchNetwork, spec)) for spec in specs]
    for _ in range(2):
        assert [await thread.run(lambda _: torch.get_num_threads()) for thread in threads] == [1, 3]
    for thread in threads:
        await thread.close()
