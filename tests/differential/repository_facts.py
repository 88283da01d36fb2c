"""What is in the models' repository."""

from pathlib import Path

REPOSITORY = Path(__file__).parent / "repository"


def working_models() -> list[str]:
    """All models but those that must fail to load."""
    return sorted(path.name for path in REPOSITORY.iterdir() if not path.name.startswith("broken_"))


def broken_models() -> list[str]:
    """Those that must fail to load, alone."""
    return sorted(path.name for path in REPOSITORY.iterdir() if path.name.startswith("broken_"))
