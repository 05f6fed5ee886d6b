"""Generates documentation pages: facts, manifest, command line, measurements, benchmark figures, and notebooks as text.

The pages are written to ``reference/generated/`` before Sphinx reads its sources, so they always match the code and the
published runs.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from benchmarks import raw
from flashcore.cli import main as cli
from flashcore.explain import advice
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model import plugin
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, FactSpec
from flashcore.model.cause import CODES, Basis, Cause, Template
from flashcore.model.compiler_decisions import meanings
from flashcore.model.record import CaseSubject, Record
from flashcore.model.suite import TIMING_MODES
from flashcore.records import lookup, store
from flashcore.suites import load

GROUPS = {
    "static": "From the compiler, the cubin and the SASS",
    "plan": "From the launch plan",
    "formula": "From the problem's formulas",
}
#: The most lines of one benchmark's output on its page; the command prints all of them.
MOST_LINES = 40
_TIMING_MODES = ("isolated", "back to back")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(app: Sphinx) -> None:
    """Writes the pages whose text changed."""
    folder = Path(app.srcdir) / "reference" / "generated"
    folder.mkdir(exist_ok=True)
    measured = figures(Path(app.srcdir).parent / "profiles")
    pages = {"facts": facts(), "causes": causes_of_outcomes(), "advice": rules_of_advice()}
    pages["compiler_decisions"] = compiler_decisions()
    pages |= {"manifest": manifest(), "commands": commands(), "measured": measured}
    pages["benchmarks"] = benchmarks(raw.ROOT / "benchmarks" / "results")
    pages |= {path.stem: notebook(path) for path in (raw.ROOT / "examples").rglob("*.ipynb")}
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def facts() -> Iterator[str]:
    """The page of facts: a table for each group of the catalog."""
    yield from (
        "# Facts",
        "",
        "The names that budgets, predictions and pages can use. A fact that was not measured is *unmeasured*: "
        "never 0, and never a pass. Each phase that a source marks also has a fact `phase_share_<name>`.",
        "",
    )
    groups: dict[str, list[FactSpec]] = {}
    for spec in FACTS.values():
        groups.setdefault(spec.group, []).append(spec)
    for group, specs in groups.items():
        yield from (f"## {GROUPS.get(group, group.capitalize())}", "")
        yield from (
            "| fact | unit | tier | better | meaning | ncu metric | advice that uses it |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        )
        for s in specs:
            ncu = f"`{s.ncu}`" if s.ncu else ""
            used = ", ".join(f"[{r.id}](advice.md#{r.id})" for r in advice.rules() if s.name in r.facts)
            yield f"| `{s.name}` | {s.unit} | {s.tier or ''} | {s.better} | {_cell(s.why)} | {ncu} | {used} |"
        yield ""


def causes_of_outcomes() -> Iterator[str]:
    """The page of causes: what each code means, its message and its details."""
    yield from (
        "# Causes",
        "",
        "A failed case or an unmeasured fact has one of these causes: in a record and in `--format json` its code "
        "with its details, on pages and in the terminal its text. Programs should use the code; the text may change.",
        "",
    )
    for _, reference in plugin.entries("causes"):
        plugin.resolve(reference)
    for kind, title, why in (
        (Cause, "Failed, or unmeasured", "An unmeasured fact never passes a limit; a required one exits 3."),
        (Basis, "How a value was measured", "The value is valid; its basis limits what it can be compared with."),
    ):
        yield from (f"## {title}", "", why, "", "| code | text | details |", "| --- | --- | --- |")
        for code, declared in sorted(CODES.items()):
            if not issubclass(declared.of if isinstance(declared, Template) else declared, kind):
                continue
            if isinstance(declared, Template):
                names, meaning = declared.fields, ""
            else:
                names = tuple(f.name for f in dataclasses.fields(declared))  # type: ignore[arg-type]
                meaning = _cell(" ".join((declared.__doc__ or "").partition("\n\n")[0].split()))
            shown = f"`{_cell(declared.form)}`" if isinstance(declared.form, str) and declared.form else meaning
            yield f"| `{code}` | {shown} | {', '.join(f'`{name}`' for name in names)} |"
        yield ""


def rules_of_advice() -> Iterator[str]:
    """The page of advice: when each rule applies, what to change, and what that can gain."""
    yield from (
        "# Advice",
        "",
        "The rules of `flashcore explain`. A rule applies if all its conditions hold; if one of their facts is "
        "unmeasured, it does not. The most that a change can gain is the part of the case's time that its "
        "resources and stalls take.",
        "",
    )
    for rule in advice.rules():
        yield from (
            f"## {rule.id}",
            "",
            f"- **Change**: {_plain(rule.action)}",
            f"- **Applies if** {' and '.join(f'`{w}`' for w in rule.when)}",
            f"- **Evidence shown**: {', '.join(f'`{f}`' for f in rule.facts)}",
            f"- **Can remove** the time of {', '.join(f'`{r}`' for r in rule.removes)}",
            *(["- **Note**: a busy resource or a wait, whose cause is unknown"] if rule.effect else []),
            "",
        )


def compiler_decisions() -> Iterator[str]:
    """The page of compiler decisions: the instructions of each name."""
    yield from (
        "# Compiler decisions",
        "",
        "The names in `must` and `must_not` of [budgets](../../how-to/gate-compiler-decisions.md). Patterns match the "
        "start of a machine instruction without its predicate. In a piece, nothing in *weaker* may "
        "stand beside what must be there. The mnemonics are those of the CUDA Binary Utilities' instruction set "
        "reference; tests compile such code for each name.",
        "",
        "| name | machine instructions | from | weaker | archs | where it does not hold |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for name, m in meanings().items():
        sass, weaker = (f"`{_cell(p)}`" if p and "\n" not in p else "" for p in (m.sass, m.weaker))
        archs = f"sm_{m.archs[0]}" + (" on" if m.archs[1] == 999 else f" to sm_{m.archs[1]}" if m.archs[1] > 90 else "")
        yield f"| `{name}` | {sass or 'a sequence'} | {_cell(m.ptx)} | {weaker} | {archs} | {_cell(m.hint)} |"


def manifest() -> Iterator[str]:
    """The page of the manifest: a table for each kind of entry, from the JSON Schema."""
    schema = json.loads(Path(load.__file__).with_name("suite.schema.json").read_text(encoding="utf-8"))
    yield from (
        "# The manifest: `suite.toml`",
        "",
        "Generated from the JSON Schema that `flashcore list --schema` prints; editors can use it for completion. "
        "All mistakes in a manifest are reported at once, with file, key, expected and found value.",
        "",
        "## Top level",
        "",
    )
    yield from _keys(schema)
    for name, form in schema["$defs"].items():
        if name.endswith("Form"):
            title = form.get("description", name.removesuffix("Form").lower()).splitlines()[0].replace("``", "`")
            yield from (f"## {title}", "")
            yield from _keys(form)


def _keys(form: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| key | type | default | meaning |", "| --- | --- | --- | --- |")
    needed = form.get("required", ())
    for key, spec in form["properties"].items():
        default = "required" if key in needed else f"`{json.dumps(spec['default'])}`" if "default" in spec else ""
        yield f"| `{key}` | {_cell(_type(spec))} | {default} | {_cell(spec.get('description', ''))} |"
    yield ""


def _type(spec: Mapping[str, Any]) -> str:
    if "enum" in spec:
        return " or ".join(f"`{v}`" for v in spec["enum"])
    if "anyOf" in spec:
        return " or ".join(dict.fromkeys(_type(s) for s in spec["anyOf"] if s.get("type") != "null"))
    if "$ref" in spec:
        name = spec["$ref"].rsplit("/", 1)[-1]
        return "name of a fact" if name == "fact" else f"table ({name.removesuffix('Form').lower()})"
    if spec.get("type") == "array":
        return f"list of {_type(spec.get('items', {}))}"
    limits = [f"matches `{spec['pattern']}`"] if "pattern" in spec else []
    return ", ".join([str(spec.get("type", "any")), *limits])


def commands() -> Iterator[str]:
    """The page of the command line: the output of ``--help`` of every command."""
    yield from ("# Command line", "")
    yield from ("```text", cli.parser([]).format_help().rstrip(), "```", "")
    for name in cli.all_commands():
        top = cli.parser([name])
        command = next(a.choices[name] for a in top._actions if isinstance(a.choices, dict))
        usage = command.format_help().split("\nexit codes:")[0].rstrip()
        yield from (f"## `flashcore {name}`", "", "```text", usage, "```", "")


def benchmarks(results: Path) -> Iterator[str]:
    """The page of benchmark figures: the output of each benchmark with committed raw data."""
    yield from (
        "# Benchmark figures",
        "",
        "Each benchmark's own code computes these figures from its raw data; the command above them prints them "
        "again. They are from the commit and date shown and are not updated with every commit.",
        "",
    )
    for path in raw.recorded(results):
        results_file = raw.opened(path)
        name = results_file["benchmark"]
        entry = "__main__" if (raw.ROOT / "benchmarks" / name).is_dir() else ""
        module = importlib.import_module(f"benchmarks.{name}.{entry}".rstrip("."))
        lines = [line for text in module.table(raw.read(path, name)) for line in text.splitlines()]
        more = [f"… and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        yield from (
            f"## {name}",
            "",
            f"{_first_sentence(module.__doc__ or '')} Measured {results_file['utc'][:10]}"
            + (f", commit `{results_file['sources']}`." if results_file["sources"] else "."),
            "",
            *("```console", f"$ python -m benchmarks.{name} --from benchmarks/results/{path.name}", "```", ""),
            *("```text", *lines[:MOST_LINES], *more, "```", ""),
        )


def _first_sentence(doc: str) -> str:
    """A docstring's first sentence, without its command, which the page shows below it."""
    sentence = " ".join(doc.partition(".\n")[0].split())
    return re.sub(r": ``python -m .*", "", sentence).rstrip(".") + "."


def notebook(path: Path) -> Iterator[str]:
    """A notebook's cells as Markdown, with the text that they print; plots are not committed."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        yield from (text, "") if cell["cell_type"] == "markdown" else ("```python", text, "```", "")
        for output in cell.get("outputs", ()):
            yield from ("```text", "".join(output["text"]).rstrip("\n"), "```", "")
        if number == 0:
            here = f"../../../{path.relative_to(raw.ROOT).as_posix()}"
            yield from (f"This page is a notebook that the tests execute: {{download}}`{path.name} <{here}>`.", "")


def figures(profiles: Path) -> Iterator[str]:
    """The page of measurements: the times of each measured suite's newest run, and its machine's roofs."""
    yield from (
        "# Measurements",
        "",
        "Generated from the runs in `profiles/`. Medians in µs; clocks were not locked. "
        "A ratio is the fastest reference's time over the fastest variant's, over their common rounds. "
        "Identical shapes are one row, which names the two cases that it compares.",
        "",
    )
    newest: dict[str, Record] = {}
    for run in reversed(lookup.all_runs(profiles)):
        record = store.read(run)
        if record.gpu is not None and record.samples:
            newest[record.suite.name] = record
    for record in newest.values():
        machine = record.environment
        yield from (
            f"## {record.suite.title}",
            "",
            f"Run `{record.id}`: {record.gpu}, driver {machine.driver}, CUDA {machine.cuda_runtime}, "
            f"torch {machine.torch}. Recorded by `{record.command or 'flashcore profile'}`.",
            "",
        )
        yield from _times(record)
        if record.roofs:
            yield from _roofs(record)


def _times(record: Record) -> Iterator[str]:
    timed, readings = [s for s in record.suite.shapes.values() if "bench" in s.stages], Readings(record)
    head = (
        "shape",
        "fastest variant",
        *_TIMING_MODES,
        "cold",
        "fastest reference",
        *_TIMING_MODES,
        "ratio in the ranking mode",
    )
    yield from (f"| {' | '.join(head)} |", "| --- " * len(head) + "|")
    for row in (Row(readings, shapes) for shapes in record.suite.rows(timed)):
        variant = next((n for n in row.times if not record.suite.variants[n].is_reference), None)
        if variant is None:
            continue
        times = [_time(record, row.cases[variant], r) for r in TIMING_MODES]
        cells = [f"`{row.name}`", f"`{variant}`", *map(_us, times)]
        if (reference := row.reference) is not None:
            reference_times = [_time(record, row.cases[reference], r) for r in TIMING_MODES[:2]]
            speedup, pair = row.over(variant, reference), row.pair(variant, reference)
            ratio = f"{speedup.value:.2f} ×" if speedup else ""
            cells += [
                f"`{reference}`",
                *map(_us, reference_times),
                f"{ratio} ({' against '.join(map(str, pair))})" if pair else ratio,
            ]
        yield "| " + " | ".join([*cells, *[""] * (9 - len(cells))]) + " |"
    yield ""


def _time(record: Record, case: Case, mode: str) -> float | None:
    return record.facts.number(f"{mode}_p50", CaseSubject(case))


def _us(value: float | None) -> str:
    return "unmeasured" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _roofs(record: Record) -> Iterator[str]:
    yield from ("### Roofs", "", "| resource | | origin | |", "| --- | --- | --- | --- |")
    for roof in record.roofs:
        yield f"| `{roof.resource}` | {roof.value:,.4g} {roof.unit} | {roof.origin} | {_cell(roof.note)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("``", "`")


def _plain(text: str) -> str:
    return re.sub(r"([_*<>])", r"\\\1", text)
