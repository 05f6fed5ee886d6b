"""The terminal's view: the latest answers of each variant, with their ages, and the keys."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO, cast

from flashcore.cli import terminal

_LABELS = {"budgets": "budgets", "right": "right", "faster": "faster", "limits": "limited by"}
_STYLES = {"ok": "green", "failed": "red", "unmeasured": "yellow"}


@contextlib.contextmanager
def drawn(keys: Mapping[str, str]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that draws an event on the terminal, where the ages grow meanwhile.

    Args:
        keys: what each key does.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    answers: dict[str, dict[tuple[str, str], tuple[float, Mapping[str, Any]]]] = {}
    head = state = ""
    foot = "   ".join(f"[{key}] {does}" for key, does in keys.items())

    def lines() -> Iterator[tuple[str, str]]:
        yield head, "bold"
        for variant, latest in list(answers.items()):  # another thread may draw
            yield variant, "bold"
            rows = list(latest.items())
            for (question, shape), (at, answer) in sorted(rows, key=lambda row: list(_LABELS).index(row[0][0])):
                age = f"{time.monotonic() - at:.0f} s ago, save {answer['save']}, after {answer['seconds']:.1f} s"
                first, *rest = (f"{shape}: {x}" if shape else x for x in answer["lines"])
                yield f"  {_LABELS[question]:<11}{first}   ({age})", _STYLES[answer["status"]]
                yield from ((f"{'':13}{line}", "") for line in rest)
        yield state, "dim"
        yield foot, "dim"

    def text() -> Text:
        return Text.assemble(*((terminal.harmless(line) + "\n", style) for line, style in lines()))

    console = Console(file=cast(TextIO, terminal.Drawing(sys.stdout)))
    with Live(console=console, get_renderable=text, refresh_per_second=2, vertical_overflow="crop") as live:

        def show(event: Mapping[str, Any]) -> None:
            nonlocal head, state, foot
            kind = event["event"]
            if kind == "answer":
                latest = answers.setdefault(event["variant"], {})
                latest[event["question"], event["shape"] or ""] = time.monotonic(), event
            elif kind == "save":
                head = f"save {event['save']}: {', '.join(event['files']) or 'all that is selected'}"
            elif kind == "serving":
                foot += "\n" + event["message"]
            elif kind == "recorded":
                state = "; ".join(event["lines"])
            else:
                state = event.get("message") or event.get("what") or "waiting for a save"
            live.refresh()

        yield show
