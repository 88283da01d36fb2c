"""Never an illegal instruction: what is compiled for one CPU level can only be reached through that level's table.

An inline function or template that such an object emits as a shared (weak) symbol may be the copy that the linker keeps
for everybody, and then code for every CPU calls instructions that only some have.
"""

import platform
import re
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[3] / "native"
BUILD = (NATIVE / "levels.cmake").read_text(encoding="utf-8")
VARIABLES = dict(re.findall(r"set\((\w+) (-m[^)]*)\)", BUILD))
FLAGS = {
    name: re.findall(r"(?<!\S)-m[\w=.+-]+", re.sub(r"\$\{(\w+)\}", lambda match: VARIABLES.get(match[1], ""), flags))
    for name, flags in re.findall(r"^\s*tribar_add_level\((\w+)\s*([^)]*)\)", BUILD, flags=re.M)
}
LEVELS = ["portable", "avx2", "avx512"] if platform.machine() in {"x86_64", "AMD64"} else ["portable"]


def test_the_flags_are_those_of_the_build() -> None:
    assert FLAGS["portable"] == []
    assert {"-mavx2", "-mfma", "-mf16c"} <= set(FLAGS["avx2"]) < set(FLAGS["avx512"])
    assert "-mavx512vnni" in FLAGS["avx512"]


@pytest.mark.long  # four seconds of a compiler for each
@pytest.mark.parametrize("level", LEVELS)
def test_an_object_of_a_level_shares_nothing(level: str, tmp_path: Path) -> None:
    """With -O1, the least inlining of any build (the sanitizers'): more inlining emits fewer functions."""
    target = tmp_path / f"{level}.o"
    flags = ["-std=c++20", "-O1", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-fno-math-errno", "-w"]
    define = f"-DTRIBAR_LEVEL_{level.upper()}"
    source = NATIVE / "src/kernels/level.cpp"
    subprocess.run(["c++", *flags, *FLAGS[level], define, "-c", str(source), "-o", str(target)], check=True, timeout=55)
    listed = subprocess.run(["nm", "-C", "--defined-only", str(target)], check=True, capture_output=True, text=True)
    symbols = [line.split(maxsplit=2)[1:] for line in listed.stdout.splitlines()]
    shared = [name for kind, name in symbols if not (kind.islower() and kind not in "uvw")]
    assert shared == [f"tribar::{level}::kKernels"]
