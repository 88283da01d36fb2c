"""``tribar models validate DIR``: one line a model, and an exit code for scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tribar.app.cli import main

GOOD = 'input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }'


def add_model(repository: Path, name: str, config: str | None, *files: str) -> Path:
    for file in files:
        (repository / name / file).parent.mkdir(parents=True, exist_ok=True)
        (repository / name / file).touch()
    (repository / name).mkdir(exist_ok=True, parents=True)
    if config is not None:
        (repository / name / "config.pbtxt").write_text(config)
    return repository / name


def validate(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    with pytest.raises(SystemExit) as ended:
        main(["models", "validate", str(directory)])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out.splitlines(), printed.err


def test_bug_060_each_model_of_a_repository_is_judged_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_model(
        tmp_path, "dims", f'backend: "python"\n{GOOD}\ninput {{ name: "z" data_type: 11\n dims: 0 }}', "1/model.py"
    )
    add_model(tmp_path, "enum", GOOD.replace("TYPE_FP32", "FP32"), "1/model.onnx")
    add_model(tmp_path, "fine", None, "1/model.py", "2/model.py")
    add_model(
        tmp_path, "many", 'platform: "onnxruntime_onnx" version_policy { all {} }', "2/model.onnx", "10/model.onnx"
    )
    add_model(tmp_path, "missing", 'backend: "python"', "1/other.py")
    add_model(tmp_path, "nothing", None)
    add_model(tmp_path, "plan", "", "1/model.plan")
    add_model(tmp_path, "unversioned", 'backend: "python"', "model.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README").touch()
    code, lines, err = validate(tmp_path, capsys)
    assert (code, err) == (1, "")
    beginnings = [
        f"{tmp_path}/dims/config.pbtxt:4:2: model 'dims': input[1].dims[0]: 'z': 0 is no size; use 1 or more",
        f"{tmp_path}/enum/config.pbtxt:1:30: 'FP32' is no value of DataType; did you mean 'TYPE_FP32'?",
        "fine: ok, version 2 on python",
        "many: ok, version 2, 10 on onnxruntime",
        f"{tmp_path}/missing/config.pbtxt: model 'missing': default_model_filename: version 1 has no 'model.py'",
        f"{tmp_path}/nothing/config.pbtxt: model 'nothing': backend: not set, and no version directory",
        f"{tmp_path}/plan/config.pbtxt: model 'plan': backend: 'tensorrt' is not served here; export the model to ONNX",
        f"{tmp_path}/unversioned/config.pbtxt: model 'unversioned': version_policy: the model has no version",
    ]
    assert len(lines) == len(beginnings)
    assert [line[: len(beginning)] for line, beginning in zip(lines, beginnings, strict=True)] == beginnings


def test_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = add_model(tmp_path, "one", f'name: "one" {GOOD}', "1/model.onnx")
    assert validate(model, capsys) == (0, ["one: ok, version 1 on onnxruntime"], "")
    monkeypatch.chdir(model)
    assert validate(Path(), capsys) == (0, ["one: ok, version 1 on onnxruntime"], "")


@pytest.mark.parametrize(("directory", "reason"), [("none", "there is no directory"), (".", "no models in")])
def test_nothing_to_check(directory: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = validate(tmp_path / directory, capsys)
    assert (code, lines, reason in err) == (1, [], True)


def test_a_configuration_that_may_not_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (add_model(tmp_path, "m", None, "1/model.py") / "config.pbtxt").mkdir()
    code, lines, _ = validate(tmp_path, capsys)
    assert (code, lines) == (1, [f"{tmp_path}/m/config.pbtxt: Is a directory"])


def test_without_the_extra_its_name_is_told(tmp_path: Path) -> None:
    code = "import sys; sys.modules['tritonclient'] = None; from tribar.app.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "models", "validate", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: model configurations need tritonclient")
    assert "pip install 'tribar[models]'" in ended.stderr
