"""The tables of docs/models.md as the code has them: rows of cells without their last column where that is prose."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.documents.code_tables import SOURCE, Row, code

from tribar.runtime.architectures.registry import GGUF_ARCHITECTURES, HF_ARCHITECTURES, Reader
from tribar.runtime.architectures.rope import KINDS
from tribar.runtime.formats.gguf_quants import BLOCK_TYPES, UNREAD_TYPES
from tribar.runtime.text.gguf_pre_tokenizers import PRE_TOKENIZATIONS


def quantisation_rows() -> Sequence[Row]:
    """GGUF type, bits a weight, weights in a block."""
    return [
        (code(name), f"{8 * block.n_bytes / block.n_elements:g}", str(block.n_elements))
        for name, block in BLOCK_TYPES.items()
    ]


def family_rows() -> Sequence[Row]:
    """File of the family, its names in config.json, its name in GGUF."""
    by_file: dict[str, tuple[list[str], list[str]]] = {}
    for i, readers in enumerate((HF_ARCHITECTURES, GGUF_ARCHITECTURES)):
        for name, reader in readers.items():
            by_file.setdefault(_file_name(reader), ([], []))[i].append(code(name))
    return [(code(file), ", ".join(hf), ", ".join(gguf)) for file, (hf, gguf) in by_file.items()]


def _file_name(reader: Reader) -> str:
    return Path(inspect.getfile(reader)).name


def name_lists() -> Sequence[str]:
    """Lists of names that the page spells out in full."""
    lists = (list(UNREAD_TYPES.values()), list(KINDS), sorted(PRE_TOKENIZATIONS))
    return [", ".join(map(code, names)) for names in lists]


def messages() -> str:
    """Every string of the runtime's source, an ellipsis in place of what f-strings fill in, one a line."""
    return "\n".join(text for path in (SOURCE / "runtime").rglob("*.py") for text in _strings(path))


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
