"""Small PyTorch modules, saved by the tests that need them."""

from collections.abc import Sequence
from pathlib import Path

import torch

ANY_ROWS_AND_COLUMNS = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}


class Identity(torch.nn.Module):
    """OUTPUT0 is INPUT0."""

    def forward(self, INPUT0: torch.Tensor) -> dict[str, torch.Tensor]:  # noqa: N803 (the tensor's name)
        return {"OUTPUT0": INPUT0.clone()}


class Scaled(torch.nn.Module):
    """The product of both arguments, and the sum of the first's rows."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * scale, x.sum(-1, keepdim=True)


def write_exported(
    file: Path,
    module: torch.nn.Module,
    arguments: Sequence[torch.Tensor] = (torch.zeros(2, 3),),
    dynamic_shapes: Sequence[dict[int, object]] = (ANY_ROWS_AND_COLUMNS,),
) -> None:
    """Save it as an exported program whose shapes vary in ``dynamic_shapes``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(torch.export.export(module, tuple(arguments), dynamic_shapes=tuple(dynamic_shapes)), file)
