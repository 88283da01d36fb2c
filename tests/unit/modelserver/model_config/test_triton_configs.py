"""What a real Triton (2.51) made of the same files; ``record_triton_configs.py`` recorded it."""

import json
from pathlib import Path

import pytest

from tribar.modelserver.model_config import complete, config_from_json, config_to_json, parse_config

CONFIGS = sorted((Path(__file__).parent / "triton_configs").glob("*.pbtxt"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_completed_and_shown_as_triton_does(file: Path, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/model.py").touch()
    config = complete(parse_config(file.read_bytes(), file=file.name), name=file.stem, directory=tmp_path)
    recorded = json.loads(file.with_suffix(".json").read_text())
    assert config_to_json(config) == recorded
    assert config_from_json(json.dumps(recorded)) == config
    assert complete(config, name=file.stem, directory=tmp_path) == config
