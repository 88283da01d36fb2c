import zipfile
from pathlib import Path

import pytest

from tribar.core.errors import Unsupported
from tribar.modelserver.backends import torch_files
from tribar.modelserver.backends.torch_files import TorchFormat, recognised


def exported(file: Path, n_sample_bytes: int) -> Path:
    """As an exported program, with compressed sample inputs of this size."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/models/model.json", "{}")
        for number in range(2):
            archive.writestr(f"m/data/sample_inputs/model{number}.pt", bytes(n_sample_bytes // 2))
    return file


def test_sample_inputs_are_unpacked_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_files, "_MAX_SAMPLE_BYTES", 1 << 20)
    kind, samples = recognised(exported(tmp_path / "small.pt2", 1 << 20))
    assert (kind, [len(sample) for sample in samples]) == (TorchFormat.EXPORTED, [1 << 19] * 2)
    with pytest.raises(Unsupported, match="more than 1 MiB of sample inputs"):
        recognised(exported(tmp_path / "bomb.pt2", (1 << 20) + 2))
