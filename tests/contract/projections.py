"""Projections: what the contract keeps of a command's output, or of a file that it wrote.

Each takes the :class:`~tests.contract.session.Output` and the words after its name, and returns what JSON can hold.
No whole text is kept, and no figure of the models behind floors, limiters and shares of the time, which may improve.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lxml import etree, html

from tests.support.pages import unpacked

if TYPE_CHECKING:
    from tests.contract.session import Output

Json = Any
SUBJECT = ("variant", "arch", "shape", "kernel", "launch")


def nothing(output: Output) -> None:
    """The exit code is all."""


def match(output: Output, *patterns: str) -> None:
    """Requires each regular expression in what was printed, standard error included."""
    if missing := [pattern for pattern in patterns if not re.search(pattern, output.out + output.err)]:
        raise ValueError(f"expected {', '.join(missing)}")


def lacks(output: Output, *patterns: str) -> None:
    """Requires that no regular expression matches."""
    if present := [pattern for pattern in patterns if re.search(pattern, output.out + output.err)]:
        raise ValueError(f"unexpected {', '.join(present)}")


def verdicts(output: Output, name: str = "") -> Json:
    """A gate's counts and verdicts: budget, status, whether required, value, subject."""
    data = json.loads(_text(output, name))
    rows = [
        " ".join([v["budget"], v["status"], *["required"] * v["required"], _short(v["value"]), _subject(v["subject"])])
        for v in data["verdicts"]
    ]
    return {"outcome": data["outcome"], "exit": data["exit_code"], "counts": data["counts"], "verdicts": sorted(rows)}


def facts(output: Output, name: str = "") -> Json:
    """Facts by subject: value, unit and source of each name."""
    rows: dict[str, dict[str, str]] = {}
    for fact in json.loads(_text(output, name))["facts"]:
        value = " ".join(filter(None, (_short(fact["value"]), fact["unit"], fact["source"])))
        rows.setdefault(_subject(fact), {})[fact["fact"]] = value
    return {subject: [f"{fact} {value}" for fact, value in sorted(row.items())] for subject, row in rows.items()}


def digest(output: Output, name: str = "") -> Json:
    """Many facts: of each name, or unit of the GPU, how many, and a checksum of their subjects and values."""
    rows: dict[str, list[str]] = {}
    for fact in json.loads(_text(output, name))["facts"]:
        text = f"{_subject(fact)} {_short(fact['value'])} {fact['unit']} {fact['source']}"
        rows.setdefault(fact["fact"].partition("__")[0], []).append(f"{fact['fact']} {text}")
    sums = {fact: hashlib.sha256("\n".join(sorted(row)).encode()).hexdigest()[:8] for fact, row in rows.items()}
    return [f"{fact} {len(rows[fact])} {sums[fact]}" for fact in sorted(rows)]


def keys(output: Output, name: str = "") -> Json:
    """The paths of the keys of JSON, with ``[]`` for the items of a list."""
    return sorted(set(_paths(json.loads(_text(output, name)), "")))


def rows(output: Output, path: str, fields: str, name: str = "") -> Json:
    """Fields of each item of the list, or table, at a dotted path; fields are separated by commas, and may be paths."""
    items = _at(json.loads(_text(output, name)), path)
    table = items if isinstance(items, list) else [items]
    return [" ".join(_short(_at(item, field)) for field in fields.split(",")) for item in table]


def answers(output: Output, name: str = "") -> Json:
    """The answers in lines of JSON: variant, shape, question, status."""
    events = (json.loads(text) for text in _text(output, name).splitlines())
    fields = ("variant", "shape", "question", "status")
    return [" ".join(str(event[field]) for field in fields) for event in events if event["event"] == "answer"]


def csv(output: Output, name: str = "") -> Json:
    """A table's columns and its number of rows."""
    head, *table = _text(output, name).splitlines()
    return {"columns": head, "rows": len(table)}


def sarif(output: Output, name: str = "") -> Json:
    """Rule, level and file of each result."""
    results = json.loads(_text(output, name))["runs"][0]["results"]
    place = [[p["physicalLocation"]["artifactLocation"]["uri"] for p in r.get("locations", [])] for r in results]
    return sorted(" ".join([r["ruleId"], r["level"], *where]) for r, where in zip(results, place, strict=True))


def junit(output: Output, name: str = "") -> Json:
    """The counts, and the names of the cases that did not pass."""
    suites = etree.fromstring(_text(output, name).encode())
    counts = {key: suites.get(key) for key in ("tests", "failures", "skipped", "errors")}
    bad = [f"{case[0].tag} {case.get('classname')} {case.get('name')}" for case in suites.iter("testcase") if len(case)]
    return {**counts, "not passed": bad}


def github(output: Output, name: str = "") -> Json:
    """Level and properties' names of each annotation."""
    annotations = re.findall(r"(?m)^::(\w+) (.*?)::", _text(output, name))
    return [" ".join([level, *re.findall(r"(\w+)=", properties)]) for level, properties in annotations]


def gitlab(output: Output, name: str = "") -> Json:
    """Rule, severity and file of each issue."""
    issues = json.loads(_text(output, name))
    return sorted(f"{i['check_name']} {i['severity']} {i['location']['path']}" for i in issues)


def tables(output: Output, name: str = "") -> Json:
    """The header and the number of rows of each table of Markdown."""
    text = _text(output, name)
    blocks = re.findall(r"(?m)((?:^\|.*\n?){2,})", text)
    return [f"{block.splitlines()[0]} {len(block.splitlines()) - 2}" for block in blocks]


def files(output: Output, *globs: str) -> Json:
    """The files that match, relative to the folder; ids of runs made now are left out of their names."""
    names = {p.relative_to(output.folder).as_posix() for pattern in globs for p in output.folder.glob(pattern)}
    return sorted({re.sub(r"\b(?!202601)20\d{6}T\d{6}Z-[0-9a-f]{4}\b", "RUN", name) for name in names})


def packed(output: Output, pattern: str) -> Json:
    """The names in a packed run."""
    (file,) = output.folder.glob(pattern)
    return sorted(name.partition("/")[2] for name in zipfile.ZipFile(file).namelist())


def page(output: Output, pattern: str, *queries: str) -> Json:
    """What each XPath finds on a page with its packed parts: the number of elements, or the distinct strings."""
    (file,) = output.folder.glob(pattern)
    tree = html.fromstring(unpacked(file.read_text(encoding="utf-8")))
    results: dict[str, Json] = {}
    for query in queries:
        items = list(cast("Any", tree.xpath(query)))
        texts = [str(item) for item in items if isinstance(item, str)]
        results[query] = sorted(set(texts)) if texts else len(items)
    return results


def baseline(output: Output, name: str) -> Json:
    """The lines of a baseline less comments and checksums of machine code."""
    return [text for text in _text(output, name).splitlines() if text[:1] != "#" and " code " not in text]


def _text(output: Output, name: str) -> str:
    """The text of the one file that matches; without a name standard output."""
    if not name:
        return output.out
    (file,) = output.folder.glob(name)
    return Path(file).read_text(encoding="utf-8")


def _subject(value: dict[str, Any]) -> str:
    return "/".join(str(value[key]) for key in SUBJECT if value.get(key) is not None)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value) if isinstance(value, list) else str(value)


def _at(value: Json, path: str) -> Json:
    for key in filter(None, path.split(".")):
        value = value.get(key) if isinstance(value, dict) else value[int(key)]
    return value


def _paths(value: Json, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _paths(inner, f"{path}[]")
    else:
        yield path
