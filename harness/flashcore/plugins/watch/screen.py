"""The terminal's view: the latest answers of each variant, with their ages, and the keys."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self, TextIO, cast

from flashcore.cli import terminal

_LABELS = {"budgets": "budgets", "right": "right", "faster": "faster", "limits": "limited by"}
_STYLES = {"ok": "green", "failed": "red", "unmeasured": "yellow"}


class Screen:
    """Used as a context, in which it draws.

    Args:
        keys: what each key does.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=cast(TextIO, terminal.Drawing(sys.stdout)))
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._keys = "   ".join(f"[{key}] {text}" for key, text in keys.items())
        self._answers: dict[str, dict[tuple[str, str], tuple[float, Mapping[str, Any]]]] = {}
        self._head = self._state = ""

    def show(self, event: Mapping[str, Any]) -> None:
        """Takes in an event as JSON, and draws; an empty one only lets the ages grow."""
        kind = event.get("event")
        if kind == "answer":
            latest = self._answers.setdefault(event["variant"], {})
            latest[event["question"], event["shape"] or ""] = time.monotonic(), event
        elif kind == "save":
            self._head = f"save {event['save']}: {', '.join(event['files']) or 'all that is selected'}"
        elif kind == "serving":
            self._keys += "\n" + event["message"]
        elif kind == "recorded":
            self._state = "; ".join(event["lines"])
        elif kind:
            self._state = event.get("message") or event.get("what") or "waiting for a save"
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Any:
        from rich.text import Text

        text = Text()
        for line, style in self._lines():
            text.append(terminal.harmless(line) + "\n", style)
        return text

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield self._head, "bold"
        for variant, latest in self._answers.items():
            yield variant, "bold"
            for question, label in _LABELS.items():
                for (_, shape), (at, answer) in ((k, v) for k, v in latest.items() if k[0] == question):
                    age = f"{time.monotonic() - at:.0f} s ago, save {answer['save']}, after {answer['seconds']:.1f} s"
                    first, *rest = (f"{shape}: {x}" if shape else x for x in answer["lines"])
                    yield f"  {label:<11}{first}   ({age})", _STYLES[answer["status"]]
                    yield from ((f"{'':13}{line}", "") for line in rest)
        yield self._state, "dim"
        yield self._keys, "dim"

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
