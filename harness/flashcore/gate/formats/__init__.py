"""A judgement in formats for programs, a module for each.

Pure functions from a judgement to text; the terminal's own table is the command line's. A new format is a module with
a ``render`` like the others', and its line in :data:`FORMATS`. Tests check each against its schema: JSON to
``gate.schema.json`` beside this file, JUnit XML to Jenkins' ``junit-10.xsd``, SARIF to that of its version 2.1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flashcore.gate.formats import github, json, junit, markdown, sarif
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.record import Record

FORMATS: Mapping[str, Callable[[Judgement, Record, Places], str]] = {
    "json": json.render,
    "junit": junit.render,
    "sarif": sarif.render,
    "markdown": markdown.render,
    "github": github.render,
}
