"""``tribar pull``: fetch a model with a progress bar."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tribar.runtime.sources import fetch_model


def pull_model(model: str) -> Path:
    """Fetch ``model`` and return where it lies. The bar is on stderr and only drawn on a terminal."""
    with DownloadBar(model) as bar:
        return fetch_model(model, bar)


class DownloadBar:
    """A progress callback that draws itself once there is progress. A context manager."""

    def __init__(self, model: str) -> None:
        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(model, total=None, visible=False)

    def __enter__(self) -> "DownloadBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        """Show that ``done_bytes`` of ``total_bytes`` (None: unknown) are here."""
        self._bar.update(self._task, completed=done_bytes, total=total_bytes, visible=True)
