"""``auto_complete_config``: what a model says about its own configuration."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.process.modelserver.python_models import LAB, write_model

from tribar.core.errors import BadModelFile, Internal, Unavailable
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.python.completions import Completions
from tribar.modelserver.backends.python.messages import Complete
from tribar.modelserver.model_config.json_form import config_to_json
from tribar.modelserver.model_config.text import parse_config

CONFIG = 'name: "lab" backend: "python"'

COMPLETE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
        config.add_output({"name": "Y", "data_type": "TYPE_STRING", "dims": [4, -1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        config.set_model_transaction_policy(dict(decoupled=True))
        return config

    def execute(self, requests: list[pb_utils.InferenceRequest]): ...
"""

COMPLETED = """
name: "lab" backend: "python" max_batch_size: 8 dynamic_batching {}
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] optional: true } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 4, -1 ] } ]
model_transaction_policy { decoupled: true }
"""


def test_the_model_completes_its_configuration(tmp_path: Path) -> None:
    version = write_model(tmp_path / "lab", COMPLETE, CONFIG)
    completed = PythonBackend().complete(version, parse_config(CONFIG, file="config.pbtxt"))
    assert completed == parse_config(COMPLETED, file="config.pbtxt")


def test_an_inherited_method_counts(tmp_path: Path) -> None:
    version = write_model(tmp_path / "lab", "from base import Base\nclass TritonPythonModel(Base): pass", CONFIG)
    (version / "base.py").write_text(COMPLETE.replace("TritonPythonModel", "Base"))
    completed = PythonBackend().complete(version, parse_config(CONFIG, file="config.pbtxt"))
    assert completed == parse_config(COMPLETED, file="config.pbtxt")


def test_a_model_without_the_method_is_not_started(tmp_path: Path) -> None:
    version = write_model(tmp_path / "lab", "1 / 0\n" + LAB, CONFIG)
    config = parse_config(CONFIG, file="config.pbtxt")
    assert PythonBackend().complete(version, config) == config


BROKEN = {
    "config.set_max_batch_size(2)": "ValueError: configuration specified max_batch_size 4, but in auto-complete-config "
    "function for model 'lab' specified max_batch_size 2",
    "raise RuntimeError('boom')": "RuntimeError: boom",
    "return None": "auto_complete_config function in model 'lab' must return a valid pb.ModelConfig object.",
    "import os; os._exit(3)": "the process that asked auto_complete_config ended (exit code 3)",
}


@pytest.mark.parametrize("line", BROKEN)
def test_completing_fails_with_the_models_reason(tmp_path: Path, line: str) -> None:
    source = COMPLETE.replace("config.set_max_batch_size(8)", line)
    config = CONFIG + " max_batch_size: 4"
    version = write_model(tmp_path / "lab", source, config)
    with pytest.raises(Internal) as failure:
        PythonBackend().complete(version, parse_config(config, file="config.pbtxt"))
    assert str(failure.value).startswith(f"{version / 'model.py'}: {BROKEN[line]}")


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    version = write_model(tmp_path / "lab", "x = (", CONFIG)
    with pytest.raises(BadModelFile, match="'\\(' was never closed"):
        PythonBackend().complete(version, parse_config(CONFIG, file="config.pbtxt"))


STUCK = """
import subprocess, sys, threading
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        open({path!r}, "w").write(str(child.pid))
        while True:
            print("still here", flush=True)
            threading.Event().wait(0.01)
"""


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def question(tmp_path: Path) -> Complete:
    version = write_model(tmp_path / "lab", STUCK.format(path=str(tmp_path / "pid")), CONFIG)
    config = json.dumps(config_to_json(parse_config(CONFIG, file="config.pbtxt")))
    return Complete(str(version / "model.py"), config)


def test_a_model_that_takes_for_ever_is_ended_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="auto_complete_config took longer than 3 s"):
        Completions(timeout_s=3.0).ask(question(tmp_path))
    child = int((tmp_path / "pid").read_text())
    while not has_ended(child):  # a signal takes a moment
        os.sched_yield()


def test_closing_ends_what_is_being_asked(tmp_path: Path) -> None:
    completions = Completions()
    with ThreadPoolExecutor(1) as executor:
        asked = executor.submit(completions.ask, question(tmp_path))
        while not (tmp_path / "pid").exists():
            assert not asked.done()
            os.sched_yield()
        completions.close()
        with pytest.raises(BadModelFile, match="ended"):
            asked.result(timeout=30)
    with pytest.raises(Unavailable, match="the server is stopping"):
        completions.ask(question(tmp_path))
