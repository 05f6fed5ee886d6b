"""Whether pages, commands, frames and MCP show the same figures of published runs.

    python -m benchmarks.figures [--run RUN]... [--json FILE]

Each surface is rendered as for a user and read back: terminal, brief, ``watch``, Markdown, the pages *Overview*,
*Budgets* and of each variant, frames, and the JSON of ``facts``, ``gate``, ``explain``, ``compare`` and MCP. Figures
of one subject and name must agree within what they are rounded to. Then a number is changed in a copy of five of
the outputs; each must be found.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import html
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import raw
from flashcore import api
from flashcore.cli import brief, inner_loop
from flashcore.features.watch import answers as watch
from flashcore.machine import python_process
from flashcore.model.case import Case
from flashcore.model.record import subject_of
from flashcore.pipeline.judging import Rules, judge_record

RUNS = (
    "20261201T110251Z-5b8e",
    "20261201T143527Z-bd55",
    "20261201T113945Z-7c3c",
    "20261201T143237Z-8188",
    "20261201T143401Z-338d",
)
#: Pairs of figures that must be compared at least.
LEAST = 2000
#: The columns of the overview that show a fact, or another figure.
_COLUMNS = {"over-parent": "over parent", "over-peer": "over reference", "over-baseline": "over baseline",
            "above-floor": "floor ratio", "floor": "floor", "isolated-p50": "isolated_p50",
            "back-to-back-p50": "back_to_back_p50", "cold-p50": "cold_p50", "isolated-p90": "isolated_p90",
            "tflops": "tflops", "tensor": "tensor_active", "achieved": "achieved_occupancy",
            "registers": "worst registers"}  # fmt: skip
_UNITS = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}
_NUMBER = r"−?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?"


class Figure(NamedTuple):
    """A shown figure of a subject: its value, and how far the true one may be from it."""

    subject: str
    name: str
    value: float | str
    within: float = 0.0


Outputs = dict[tuple[str, str, str], str]  # run, surface, part → text
_Reader = Callable[[str, str], Iterator[Figure]]


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and prints; 1 if figures differ, too few were compared, or a planted difference was not found."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda found: int(not _good(found)))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", action="append", default=[], metavar="RUN", help=f"default: {', '.join(RUNS)}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Renders, compares, plants."""
    runs = options.run or list(RUNS)
    outputs: Outputs = {}
    suites: dict[str, str] = {}
    for run in runs:
        print(run, file=sys.stderr, flush=True)
        suites[run] = rendered(run, outputs)
    for one, other in pairwise(runs):
        if suites[one] == suites[other]:
            outputs[other, "compare", one] = command("compare", one, other, "--top", "0", "--format", "json")
    figures = {place: [*READERS[place[1]](text, place[2])] for place, text in outputs.items()}
    differences, pairs, surfaces = compared(figures)
    planted = [_planted(outputs, figures, *plant) for plant in PLANTS]
    return {"runs": suites, "figures": sum(map(len, figures.values())), "pairs": pairs, "surfaces": surfaces,
            "differences": differences, "planted": planted}  # fmt: skip


def command(*words: str) -> str:
    """What a command prints."""
    line = python_process.command("flashcore", *words)
    done = subprocess.run(
        line, cwd=raw.ROOT, env=python_process.environment(), capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise RuntimeError(f"flashcore {' '.join(words)}: {done.stderr}")
    return done.stdout


def rendered(run: str, outputs: Outputs) -> str:
    """Adds what each surface shows of a run; the suite's name."""
    for words in (("facts",), ("gate",), ("explain", "--variant", "*")):
        outputs[run, words[0], ""] = command(words[0], run, *words[1:], "--format", "json")
    outputs[run, "markdown", ""] = command("report", run, "--format", "md")
    with tempfile.TemporaryDirectory(prefix="bench-figures-") as name:
        command("report", run, "-o", name)
        for page in Path(name).rglob("*.html"):
            if page.parent.name == "variant" or page.stem in ("index", "budgets"):
                surface = "variant page" if page.parent.name == "variant" else f"page {page.stem}"
                outputs[run, surface, page.stem] = _unpacked(page.read_text(encoding="utf-8"))
    outputs[run, "mcp", ""] = _mcp("explain", names=[run], variant=["*"])
    opened = api.read_run(run)
    judged, suite = judge_record(Rules(), opened.record), opened.record.suite
    for variant in suite.variants.values():
        outputs[run, "terminal", variant.name] = "\n".join(inner_loop.answers(judged, None, variant.name))
        for shape in (s for s in suite.shapes.values() if variant.runs_on(s)):
            case = Case(variant.name, shape.name)
            outputs[run, "brief", str(case)] = brief.fitted(brief.brief(judged, str(case)), as_json=True)
            contents = watch.of_times(judged.answers.time(case)), watch.of_limits(judged.answers.of(case))
            outputs[run, "watch", str(case)] = json.dumps([content._asdict() for content in contents])
    tables = {shape: _rows(opened.table(shape)) for shape in suite.shapes}
    limiters, verdicts = _rows(opened.limiters_frame()), _rows(api.judge(opened).verdicts)
    outputs[run, "frames", ""] = json.dumps({"table": tables, "limiters": limiters, "verdicts": verdicts})
    return suite.name


def _rows(frame: Any) -> list[dict[str, Any]]:
    """A frame's rows, each number with all its digits."""
    rows = frame.reset_index().astype(object)
    found: list[dict[str, Any]] = json.loads(json.dumps(rows.where(rows.notna(), None).to_dict("records"), default=str))
    return found


def _mcp(tool: str, **given: Any) -> str:
    """A tool's answer from the server."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    asked: list[dict[str, Any]] = [{"id": 1, "method": "initialize", "params": about}]
    asked += [{"method": "notifications/initialized"}]
    asked += [{"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": given}}]
    line = python_process.command("flashcore", "mcp", "--root", ".", "--answer-bytes", "100000000")
    with subprocess.Popen(
        line, cwd=raw.ROOT, env=python_process.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout
        for message in asked:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        result = next(m["result"] for text in server.stdout if (m := json.loads(text)).get("id") == 2)
        server.stdin.close()
    return json.dumps(result["structuredContent"])


# --- reading what is shown -----------------------------------------------------------------------------


def _shown(subject: str, name: str, text: str, scale: float = 1.0) -> Figure:
    """A printed number, which is right to half of its last digit."""
    plain = text.replace(",", "").replace("−", "-")
    digits, _, exponent = plain.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return Figure(subject, name, scale * float(plain), scale * 0.5 * last)


def _exact(subject: str, name: str, value: Any, digits: int = 12) -> Iterator[Figure]:
    """A number of a JSON text, with that many significant digits."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        size = math.floor(math.log10(abs(value))) if value else 0
        yield Figure(subject, name, float(value), 0.5 * 10.0 ** (size + 1 - digits))


def _sentence(case: str, text: str) -> Iterator[Figure]:
    """The figures of a sentence about a case, as terminal, ``watch`` and pages have it."""
    text = text.replace("\u00a0", " ")
    for number, unit, mode in re.findall(rf"({_NUMBER}) (ns|µs|ms|s) (isolated|back to back|cold|eager)\b", text):
        yield _shown(case, f"{mode.replace(' ', '_')}_p50", number, _UNITS[unit])
    over = rf"({_NUMBER}) × (?:faster than|the speed of) (?:its|the) (parent|baseline|reference) "
    same = rf"no difference from (?:its|the) (parent|baseline|reference) \w+, ratio ({_NUMBER})"
    pairs = [*re.findall(over, text), *(pair[::-1] for pair in re.findall(same, text))]
    yield from (_shown(case, f"over {role}", number) for number, role in pairs)
    for ratio, floor in re.findall(rf"({_NUMBER}) × its floor of ({_NUMBER}) µs", text):
        yield from (_shown(case, "floor ratio", ratio), _shown(case, "floor", floor))
    yield from (_shown(case, "first saves", n) for n in re.findall(rf"saves at most ({_NUMBER}) %", text)[:1])


def _limiter(case: str, text: str) -> Iterator[Figure]:
    """The share of the first limiter of a list: ``SMs without warps 30 %; …``."""
    if match := re.match(rf"(?!unmeasured)[^;%]*? ({_NUMBER})(?: ± \d+)? %", text.strip()):
        yield _shown(case, "limiter", match[1])


def _terminal(text: str, variant: str) -> Iterator[Figure]:
    case = ""
    for line in re.sub(r"(?m)^\d [\w ]+\?", "", text.partition("2 faster?")[2].partition("4 budgets?")[0]).splitlines():
        if match := re.match(r"\s*(\w+): (?!unmeasured)(.*)", line):
            case, line = f"{variant}/{match[1]}", match[2]
            first = re.sub(r"^[^;]* its floor of [^;]*(; |$)", "", line)
            yield from _limiter(case, first) if " isolated" not in line and "back to back" not in line else ()
        yield from _sentence(case, line)


def _watch(text: str, case: str) -> Iterator[Figure]:
    times, limits = json.loads(text)
    yield from _sentence(case, "\n".join([*times["lines"], *limits["lines"]]))
    if times["data"]:
        yield from _exact(case, f"{times['data']['mode']}_p50", times["data"]["us"])
    for part in limits["data"]["limiters"]:
        yield from _exact(case, f"share {part['kind']}", part["share"])


def _brief(text: str, case: str) -> Iterator[Figure]:
    data = json.loads(text)
    time, floor = data["time"], data["time"].get("floor")
    yield from _exact(case, f"{time.get('mode')}_p50", time.get("us"), 4)
    if isinstance(floor, dict):
        yield from (*_exact(case, "floor", floor["us"], 4), *_exact(case, "floor ratio", floor["ratio"], 4))
    for role, (_, ratio, *_) in time.get("over", {}).items():
        match = re.search(rf"ratio ({_NUMBER})|({_NUMBER}) ×", ratio)
        yield from [_shown(case, f"over {role}", match[1] or match[2])] if match else ()
    yield from _exact(case, "limiter", data["limiter"].get("share"), 4)
    parts = {kind: share for kind, share in data.get("parts", {}).items() if kind not in ("by", "unmeasured", "cause")}
    for kind, share in parts.items():
        yield from _exact(case, f"share {kind}", share, 4)
    for first in [x for x in data.get("advice", []) if isinstance(x, dict)][:1]:
        yield from _exact(case, "first saves", first.get("saves_at_most"), 4)
    for budget in (x for x in data.get("budgets", []) if isinstance(x, dict) and "…" not in x["of"] + x["budget"]):
        yield from _exact(budget["of"], f"verdict {budget['budget']}", budget.get("value"), 4)
        yield Figure(budget["of"], f"status {budget['budget']}", budget["is"])
        yield from _exact(budget["of"], f"headroom {budget['budget']}", budget.get("headroom_percent"), 4)


def _explain(text: str, _: str) -> Iterator[Figure]:
    first: dict[str, Any] = {}
    for advice in json.loads(text)["advice"]:
        case = f"{advice['subject']['variant']}/{advice['subject']['shape']}"
        first.setdefault(case, advice["gain"])
        yield from _exact(case, f"saves {advice['rule']}", advice["gain"])
    for case, gain in first.items():
        yield from _exact(case, "first saves", gain)


def _subject(row: Mapping[str, Any]) -> str:
    parts: list[Any] = [row.get(key) for key in ("variant", "shape", "kernel", "launch", "arch")]
    return str(subject_of(*parts))


def _facts(text: str, _: str) -> Iterator[Figure]:
    for fact in json.loads(text)["facts"]:
        yield from _exact(_subject(fact), fact["fact"], fact["value"])


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        subject = _subject(row.get("subject") or row)
        yield from _exact(subject, f"verdict {row['budget']}", row["value"])
        yield Figure(subject, f"status {row['budget']}", row["status"])


def _gate(text: str, _: str) -> Iterator[Figure]:
    yield from _verdicts(json.loads(text)["verdicts"])


def _frames(text: str, _: str) -> Iterator[Figure]:
    data = json.loads(text)
    yield from _verdicts(data["verdicts"])
    first = set()
    for part in data["limiters"]:
        case = f"{part['variant']}/{part['shape']}"
        yield from _exact(case, f"share {part['kind']}", part["share"])
        yield from _exact(case, "limiter", part["share"]) if case not in first else ()
        first.add(case)
    names = {"floor [us]": "floor", "gap": "floor ratio", "registers": "worst registers"}
    for row in (row for rows in data["table"].values() for row in rows):
        for column, value in row.items():
            name = names.get(column) or column.partition(" [")[0]
            yield from _exact(f"{row['variant']}/{row['shape']}", name, value, 9)


def _compare(text: str, _: str) -> Iterator[Figure]:
    for row in json.loads(text)["rows"]:
        for change in row["changes"] if not row["was"] else ():
            yield from _exact(_subject({**row, "shape": change["shape"]}), change["fact"], change["after"])


def _markdown(text: str, _: str) -> Iterator[Figure]:
    for line in text.partition("### Winners")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 7 and cells[1].startswith("`"):
            name = f"{cells[1].strip('`')}/{cells[0].partition(' ')[0]}"
            yield from _sentence(name, f"{cells[2]} µs {cells[3]}")
            yield from _limiter(name, cells[6])


def _unpacked(page: str) -> str:
    """A page with its compressed parts and data, each as if it were in the page."""
    packed = r'<script type="text/plain"([^>]*)>([^<]*)</script>'
    return re.sub(packed, lambda m: f"<div{m[1]}>{gzip.decompress(base64.b64decode(m[2])).decode()}</div>", page)


def _plain(element: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", element))


def _overview(page: str, _: str) -> Iterator[Figure]:
    winner = (
        r'href="variant/(\w+)\.html\?shape=(\w+)">(?:(?!</tr>).)*?× (?:faster than|the speed of)[^"]*">([\d.,]+)</td>'
    )
    for variant, shape, number in re.findall(winner, page.partition('<table class="sortable overview"')[0], re.DOTALL):
        yield _shown(f"{variant}/{shape}", "over reference", number)
    for table in re.findall(r'<table class="sortable overview".*?</table>', page, re.DOTALL):
        heads = re.findall(r'data-key="([^"]*)"[^>]*>([^<]*)', table)
        keys = [head.strip() if head.strip() == "rate" else key for key, head in heads]  # of a run of roofs
        for row in re.findall(r"<tr class.*?</tr>", table, re.DOTALL):
            place = re.search(r"variant/(\w+)\.html\?shape=(\w+)", row)
            cells = re.findall(r"<t[hd]([^>]*)>(.*?)</t[hd]>", row, re.DOTALL)
            for key, (attributes, cell) in zip(keys, cells, strict=True) if place else ():
                case = f"{place[1]}/{place[2]}" if place else ""
                text = _plain(cell.partition('<span class="')[0]).strip()
                if key in _COLUMNS and re.fullmatch(_NUMBER, text):
                    yield _shown(case, _COLUMNS[key], text)
                    exact = re.search(r'data-sort="([\d.e-]+)"', attributes)
                    yield from _exact(case, _COLUMNS[key], float(exact[1])) if exact else ()
                yield from _limiter(case, _plain(cell)) if key == "limiter" else ()


def _variant_page(page: str, variant: str) -> Iterator[Figure]:
    for part in re.split(r'<div class="(?:packed )?byshape" data-shape="', page)[1:]:
        shape, _, part = part.partition('"')
        case = f"{variant}/{shape}"
        answer = re.search(r'data-is="answer">(.*?)</p>', part, re.DOTALL)
        limiter = re.search(r'data-is="limiter">(.*?)</span>', part, re.DOTALL)
        steps = re.search(r'<ol class="steps">(.*?)</ol>', part, re.DOTALL)
        yield from _sentence(case, f"{_plain(answer[1])} {_plain(steps[1]) if steps else ''}") if answer else ()
        yield from _limiter(case, _plain(limiter[1])) if limiter else ()
        for share in re.findall(r'<table class="limiters">.*?</span> ([\d.]+)</td>', part, re.DOTALL)[:1]:
            yield _shown(case, "limiter", share)


def _budgets(page: str, _: str) -> Iterator[Figure]:
    data = json.loads((re.search(r'id="[^"]*-data">(.*?)</div>', page, re.DOTALL) or ["", "{}"])[1])
    columns = {key: _column(*value) for key, value in data.items() if key not in ("count", "linked", "rank")}
    for i in range(data.get("count", 0)):
        row = {key: column[i] for key, column in columns.items()}
        status = "pass" if row["status"] == "at_risk" else row["status"]
        yield from _verdicts([{**row, "budget": row["budget"][0], "status": status}])
        if (match := re.fullmatch(rf"({_NUMBER}) %", row["headroom"] or "")) and row["headroom"] != "0 %":
            figure = _shown(_subject(row), f"headroom {row['budget'][0]}", match[1])
            yield figure._replace(within=1.0)


def _column(values: list[Any], which: list[int]) -> list[Any]:
    return [values[i] for i in which] if which else values


READERS: Mapping[str, _Reader] = {
    "facts": _facts, "gate": _gate, "explain": _explain, "mcp": _explain, "markdown": _markdown,
    "page index": _overview, "page budgets": _budgets, "variant page": _variant_page, "terminal": _terminal,
    "brief": _brief, "watch": _watch, "frames": _frames, "compare": _compare,
}  # fmt: skip
#: What is changed in a copy of an output: the surface, and where in it a number is.
PLANTS = (
    ("page index", rf'<td class="number" title="{_NUMBER} × (?:faster|the speed)[^"]*">({_NUMBER})<'),
    ("variant page", rf"({_NUMBER}) × its floor of"),
    ("brief", rf'"share": ({_NUMBER})'),
    ("page budgets", r'"value":\[\[(?:null,|true,|false,)*(\d+)'),
    ("markdown", rf"(?s)### Winners.*?\| `\w+` \| ({_NUMBER}) \|"),
)


# --- comparing -----------------------------------------------------------------------------------------


def compared(figures: Mapping[tuple[str, str, str], Sequence[Figure]]) -> tuple[list[str], int, dict[str, int]]:
    """The differences, the number of pairs, and that of each surface; each figure is held against the most exact."""
    shown: dict[tuple[str, str, str], dict[str, list[Figure]]] = {}
    for (run, surface, _), found in figures.items():
        for figure in found:
            shown.setdefault((run, figure.subject, figure.name), {}).setdefault(surface, []).append(figure)
    differences, pairs = [], Counter[str]()
    for (run, subject, name), by_surface in shown.items():
        if len(by_surface) < 2:
            continue
        origin = min(by_surface, key=lambda s: by_surface[s][0].within)
        best = by_surface[origin][0]
        for surface, found in by_surface.items():
            for one in found if surface != origin else ():
                pairs[surface] += 1
                if not _agree(best, one):
                    differences.append(f"{run} {subject} {name}: {origin} {best.value}, {surface} {one.value}")
    return differences, sum(pairs.values()), dict(pairs)


def _agree(one: Figure, other: Figure) -> bool:
    if isinstance(one.value, str) or isinstance(other.value, str):
        return one.value == other.value
    # Of two roundings the finer is at most a tenth of the other, or the same; then the digits must be equal.
    return abs(one.value - other.value) <= 1.2 * max(one.within, other.within)


def _planted(
    outputs: Outputs, figures: Mapping[tuple[str, str, str], Sequence[Figure]], surface: str, where: str
) -> dict[str, Any]:
    """Changes a number in the first output of a surface that has one; whether that, and nothing else, is found."""
    places = ((place, re.search(where, text)) for place, text in outputs.items() if place[1] == surface)
    place, match = next(((place, match) for place, match in places if match), (("", surface, ""), None))
    if match is None:
        return {"surface": surface, "run": "", "from": "", "to": "", "found": False}
    decimals = len(match[1].partition(".")[2])
    changed = f"{float(match[1].replace(',', '')) * 1.1 + 10.0**-decimals:.{decimals}f}"
    text = outputs[place][: match.start(1)] + changed + outputs[place][match.end(1) :]
    found = {*compared({**figures, place: [*READERS[surface](text, place[2])]})[0]} - {*compared(figures)[0]}
    is_found = bool(found) and all(surface in line for line in found)
    return {"surface": surface, "run": place[0], "from": match[1], "to": changed, "found": is_found}


def _good(found: raw.Results) -> bool:
    is_found = len(found["planted"]) >= len(PLANTS) and all(x["found"] for x in found["planted"])
    return found["pairs"] >= LEAST and not found["differences"] and is_found


def table(found: raw.Results) -> list[str]:
    """The results as lines of text."""
    rows = sorted(found["surfaces"].items(), key=lambda row: -row[1])
    return [
        f"{found['figures']:,} figures of {len(found['runs'])} runs: {', '.join(found['runs'])}",
        f"{found['pairs']:,} pairs (at least {LEAST:,}), {len(found['differences'])} differ",
        *(f"  {surface:14} {pairs:8,}" for surface, pairs in rows),
        *(f"  DIFFERS {line}" for line in found["differences"][:40]),
        *(
            f"planted in {x['surface']}, {x['from']} to {x['to']}: {'found' if x['found'] else 'NOT FOUND'}"
            for x in found["planted"]
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
