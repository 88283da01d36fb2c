"""What is in the models' repository."""

from pathlib import Path

REPOSITORY = Path(__file__).parent / "repository"


def working_models() -> list[str]:
    """All models but the odd ones."""
    return sorted(path.name for path in REPOSITORY.iterdir() if not path.name.startswith("broken_"))


def broken_models() -> list[str]:
    """Those with an odd configuration or program: most must fail to load, alone."""
    return sorted(path.name for path in REPOSITORY.iterdir() if path.name.startswith("broken_"))
