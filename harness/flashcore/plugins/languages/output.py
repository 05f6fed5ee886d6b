"""What a compiler writes to this process's output."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def written() -> Iterator[Callable[[], str]]:
    """A context whose value returns what was written to the standard output and error in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        before = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        text = ""
        try:
            yield lambda: text
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            text = file.read().decode(errors="replace")
