"""Mutants of command lines, and of what other compilers and profilers made: Triton's kernels, ncu's CSV pages."""

from __future__ import annotations

import csv
import io
import random
import re
import shutil
from fnmatch import fnmatchcase
from typing import Any

from benchmarks import raw
from benchmarks.holes.place import Place
from benchmarks.holes.sources import Row, seen
from flashcore.records import store
from tests.recorded import RECORDED

# --- 10. selections -------------------------------------------------------------------------------

#: The first nine, two, and five are valid.
_VARIANTS = ("plain", "wide", "w*", "p*", "*", "two_steps", "[pw]*", "?ide", "torch*",
             "Wide", "", "nothing", " wide", "-a", "plain,wide", "torch_mul")  # fmt: skip
_SHAPES = ("small", "tail", "Small", "", "nothing", "s*", "small,tail")
_ENVIRONMENTS: tuple[dict[str, str], ...] = (
    *({} for _ in range(3)),
    *({"CUDA_ARCH": text} for text in ("8.0", "9.0a", "9.0", "7.5", "8.0,7.5", ",")),
    *({name: text} for name, text in (("DEBUG", "1"), ("DEBUG", "yes"), ("MAX_JOBS", "x"))),
)
_OTHERS = ("RUN", "--records", "--baseline", "--budgets")
_FAILING = """
[[budget]]
name = "one_thread"
fact = "threads"
max = 1
variants = ["wide"]
source = "planted"
"""


def selections(place: Place, chance: random.Random, harmless: bool) -> Row:
    """10. One variant of one suite fails. A command that selects it does not exit 0, nor one whose pattern is idle."""
    other = place.folder / "kernels" / "other"
    shutil.copytree(place.suite, other)
    manifest = other / "suite.toml"
    manifest.write_text(manifest.read_text().replace('name = "toy"', 'name = "other"'))
    lines = other / "baseline.txt"
    lines.write_text(lines.read_text().replace("toy", "other", 1))
    place.manifest.write_text(place.manifest.read_text() + _FAILING)
    names = ("plain", "wide", "two_steps", "torch_mul")
    (run,) = place.profiles.iterdir()
    suites = {
        str(place.suite): "toy",
        str(other): "other",
        f"{place.manifest}": "toy",
        "kernels/toy": "toy",
        "kernels/other": "other",
    }
    valid = chance.random() < 0.5  # by itself each option is; together they may select what fails
    count = chance.choice((1, 2) if valid else (1, 1, 2, 2, 3))
    chosen = [chance.choice([*suites]) for _ in range(1 if valid else chance.choice((1, 1, 2)))]
    words = [w for one in chosen for w in ("--suite", one)]
    variants: list[str] = []
    shapes: list[str] = []
    if harmless:
        words, variants = ["--suite", str(place.suite), "--variant", "plain"], ["plain"]
        chosen = [str(place.suite)]
    for _ in range(0 if harmless else count):
        option = chance.choice(
            ("--variant", "--variant", "--variant", "--shape", "--require", *(() if valid else _OTHERS))
        )
        if valid and any(word.startswith(option) for word in words):
            continue
        if option == "RUN":
            words.append(chance.choice((run.name, str(run), run.name[:8], "nothing")))
            continue
        value = chance.choice(
            {
                "--variant": _VARIANTS[: 9 if valid else None],
                "--shape": _SHAPES[: 2 if valid else None],
                "--require": ("static", "timing", "counters", "none")[: 2 if valid else None],
                "--records": (str(place.profiles), str(run), "nothing"),
                "--baseline": (str(other / "baseline.txt"), "nothing"),
                "--budgets": ("/dev/null", "nothing", str(place.manifest)),
            }[option]
        )
        {"--variant": variants, "--shape": shapes}.get(option, []).append(value)
        words += [f"{option}={value}"] if value.startswith("-") or chance.random() < 0.3 else [option, value]
    if not harmless and chance.random() < 0.2:
        words = [w for w in words if w != "--suite" and w not in suites]
        chosen = []
    if not harmless and chance.random() < 0.5:
        chance.shuffle(
            parts := [
                words[i : i + 2] if words[i].startswith("--") and "=" not in words[i] else [words[i]]
                for i in _starts(words)
            ]
        )
        words = [w for part in parts for w in part]
    env = {} if harmless else chance.choice(_ENVIRONMENTS[: 5 if valid else None])
    cwd = place.suite if not chosen else place.folder
    answer = place.flashcore(
        "gate",
        *words,
        "--profiles",
        str(place.profiles),
        "--build-dir",
        str(place.build),
        "--format",
        "json",
        "-q",
        cwd=cwd,
        env=env,
    )
    what = f"gate {' '.join(map(repr, words))} {env or ''} in {cwd.name}".replace(str(place.folder), "")
    if answer.is_defect:
        return what, "wrong", answer.words
    if harmless or answer.code:
        return what, *seen(answer, harmless)
    judged = {"toy"} if not chosen else {suites[s] for s in chosen}
    by_run = any(run.name.startswith(w) or w == str(run) for w in words if w not in ("--records", str(place.profiles)))
    idle = [v for v in variants if not any(fnmatchcase(n, v) for n in names)] + [
        s for s in shapes if s not in ("small", "tail")
    ]
    selects = not by_run and "toy" in judged and (not variants or any(fnmatchcase("wide", v) for v in variants))
    if idle or selects or len(chosen) > 1:
        return what, "wrong", f"passed, though {idle or chosen if not selects else 'it selects what fails'}"
    return what, "equivalent", "selects only what passes"


def _starts(words: list[str]) -> list[int]:
    """The index of each option."""
    starts, i = [], 0
    while i < len(words):
        starts.append(i)
        i += 2 if words[i].startswith("--") and "=" not in words[i] else 1
    return starts


# --- 11. what others made -------------------------------------------------------------------------

_PAGE = RECORDED / "ncu_raw_multi_kernel.csv"
_UNITS = (
    "byte",
    "Kbyte",
    "Mbyte",
    "nsecond",
    "usecond",
    "msecond",
    "second",
    "%",
    "hz",
    "Ghz",
    "Mhz",
    "",
    "cycle",
    "inst",
    "register/thread",
    "byte/block",
    "Kbyte/block",
    "byte/second",
    "Gbyte/second",
    "unknown",
)


def _exactly(record: Any) -> tuple[str, dict[Any, Any]]:
    """Budgets that hold each imported value exactly, and the values by kernel and fact."""
    values: dict[Any, set[Any]] = {}
    for fact in record.facts:
        if fact.number is not None and fact.subject.kernel and fact.name != "timestamp":
            values.setdefault((fact.subject.kernel, fact.name), set()).add(fact.number)
    lines = []
    for i, ((kernel, name), numbers) in enumerate(sorted(values.items())):
        glob = re.sub(r"([*?\[!])", r"[\1]", kernel)
        low, high = min(numbers), max(numbers)
        slack = 1e-9 * max(abs(low), abs(high))
        lines.append(
            f'[[budget]]\nname = "b{i}"\nfact = "{name}"\nmin = {low - slack!r}\nmax = {high + slack!r}\n'
            f"kernels = ['{glob}']\n"
        )
    return "\n".join(lines), values


def imported_pages(place: Place, chance: random.Random, harmless: bool) -> Row:
    """11. A CSV page of ncu is damaged or in other units: a budget on each value as it was notices any other value."""
    text = _PAGE.read_bytes().decode()
    head, at = text[: (start := text.index('"ID"'))], place.folder / "page.csv"
    rows = [*csv.reader(io.StringIO(text[start:]))]
    at.write_text(text)
    answer = place.flashcore("import", str(at), "--profiles", str(place.folder / "first"))
    if answer.code:
        return "the page as it is", "wrong", answer.words
    (first,) = (place.folder / "first").iterdir()
    budgets, values = _exactly(store.read(first))
    (place.folder / "exact.toml").write_text(budgets)
    how = (
        "none"
        if harmless
        else chance.choice(
            (
                "unit",
                "unit",
                "number",
                "number",
                "number",
                "form",
                "form",
                "metric",
                "column",
                "row",
                "doubled row",
                "kernel",
                "cut",
                "delimiter",
                "line ends",
                "mark",
                "quotes",
            )
        )
    )
    columns = [i for i, name in enumerate(rows[0]) if any(name == n for _, n in values) or "__" in name]
    column = chance.choice(columns)
    row = rows[chance.randrange(2, len(rows))]
    what = how
    if how == "unit":
        what = f"unit of {rows[0][column]}: {rows[1][column]} → {(unit := chance.choice(_UNITS))}"
        rows[1][column] = unit
    elif how in ("number", "form"):
        old = row[column]
        number = float(old.replace(",", "")) if re.fullmatch(r"[-\d.,]+", old) else 0.0
        new = chance.choice(
            [str(number * 2 + 1), str(-number - 1), "", "n/a", "nan", "inf", "1e400", "x"]
            if how == "number"
            else [f"{number:,.2f}", f"{number:.3f}".replace(".", ","), f"{number:e}", f" {old} ", f"'{old}'", f"{old}%"]
        )
        row[column] = new
        what = f"{rows[0][column]}: {old} → {new}"
    elif how == "metric":
        what = f"{rows[0][column]} renamed"
        rows[0][column] = rows[0][column][:-1]
    elif how == "column":
        what = f"without {rows[0][column]}"
        rows = [r[:column] + r[column + 1 :] for r in rows]
    elif how == "row":
        rows.remove(row)
    elif how == "doubled row":
        rows.append(row)
    elif how == "kernel":
        row[rows[0].index("Kernel Name")] += "_other"
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    text = head + out.getvalue()
    if how == "cut":
        text = text[: chance.randrange(len(head), len(text))]
    text = {
        "delimiter": text.replace('","', '";"'),
        "line ends": text.replace("\n", "\r\n"),
        "mark": "\ufeff" + text,
        "quotes": text.replace('"', "", chance.randrange(1, 9)),
    }.get(how, text)
    at.write_bytes(text.encode())
    answer = place.flashcore("import", str(at), "--profiles", str(place.folder / "second"))
    if not answer.code:
        (second,) = (place.folder / "second").iterdir()
        answer = place.flashcore(
            "gate", str(second), "--budgets", str(place.folder / "exact.toml"), "--format", "json", "-q"
        )
        if not answer.code and not harmless:
            now = _exactly(store.read(second))[1]
            if now == values:
                return what, "equivalent", "read as the same values"
            differing = [k for k in values if values[k] != now.get(k)][:2]
            return what, "wrong", f"passed with other values: {differing} {[values[k] for k in differing]}"
    return what, *seen(answer, harmless)


_TRITON = {
    "registers": ("maxnreg=CAP", ("maxnreg=24", "maxnreg=32")),
    "grid": ("[(rows,)]", ("[(0,)]", "[(1, 70000)]", "[(rows, 1, 65536)]")),
    "warps": ("num_warps=1", ("num_warps=64", "num_warps=3", "num_warps=0")),
    "launcher": (
        "    rows, columns",
        (
            "    raise RuntimeError('x')\n    rows, columns",
            "    import os; os._exit(0)\n    rows, columns",
            "    x.cpu()\n    rows, columns",
            "    return\n    rows, columns",
            "    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n    rows, columns",
        ),
    ),
    "block": ("BLOCK=block", ("BLOCK=block + 1", "BLOCK=1 << 22", "BLOCK=0")),
    "kernel": ("tl.max(values, 0)", ("tl.maximum(values)", "tl.max(values, 2)", "undefined")),
    "module": (
        "import triton\n",
        ("import triton\nimport nothing_like_it\n", "import triton\nimport sys; sys.exit(0)\n", "import triton\n)\n"),
    ),
}


def traced_kernels(place: Place, chance: random.Random, harmless: bool) -> Row:
    """11. A Triton variant spills, cannot launch, does not compile, or ends its process."""
    from tests.support import triton_suite

    suite = place.folder / "kernels" / "planted"
    triton_suite.written(suite)
    shutil.copy(raw.ROOT / "examples" / "row_softmax" / "problem.py", suite / "rows.py")
    name, (old, news) = chance.choice([*_TRITON.items()])
    new = old if harmless else chance.choice(news)
    place.edit(suite / "sound.py", old, new)
    where = ["--suite", str(suite), "--profiles", str(place.profiles), "--build-dir", str(place.build)]
    answer = place.flashcore("gate", *where, "--variant", "sound", "--format", "json", "-q")
    return f"{name}: {new.strip()[:60]!r}", *seen(answer, harmless)
