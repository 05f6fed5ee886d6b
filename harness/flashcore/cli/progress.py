"""A command's progress messages on standard error: lines, and on a terminal a bar below them."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from flashcore.cli import terminal
from flashcore.model.progress import FailureLine, ProgressLine, Say


@contextmanager
def shown(quiet: bool = False) -> Iterator[Say]:
    """Yields the function that prints progress lines; ``quiet`` drops all but failures. Leave the context before
    printing results."""
    if quiet:
        write = plain()
        yield lambda text: write(text) if isinstance(text, FailureLine) else None
    elif terminal.is_rich(sys.stderr) and importlib.util.find_spec("rich") is not None:
        with _bar() as say:
            yield say
    else:
        yield plain()


def plain(put: Say = lambda text: print(text, file=sys.stderr, flush=True)) -> Say:
    """Prints each line immediately, with the seconds since the start."""
    started = time.monotonic()
    return lambda text: put(f"[{time.monotonic() - started:6.1f} s] {text}")


@contextmanager
def _bar() -> Iterator[Say]:
    from rich import console, markup, progress

    drawn = console.Console(file=cast(TextIO, terminal.Drawing(sys.stderr)))
    columns = (
        progress.BarColumn(20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}"),
    )
    # Redrawn for new lines only, not periodically, so that nothing runs during a measurement.
    with progress.Progress(*columns, console=drawn, auto_refresh=False, transient=True) as bar:
        # The terminal wraps lines, so that a compiler's output can be copied.
        write = plain(lambda text: drawn.print(terminal.harmless(text), markup=False, highlight=False, soft_wrap=True))
        task = bar.add_task("", total=None)

        def say(text: str) -> None:
            if isinstance(text, ProgressLine):
                bar.update(
                    task, completed=text.done, total=text.total, description=markup.escape(terminal.harmless(text))
                )
            else:
                write(text)
            bar.refresh()

        yield say
