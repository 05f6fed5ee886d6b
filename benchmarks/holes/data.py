"""Mutants of what lies on the disk: limits, records, caches, what a problem reads, texts, and where output goes."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.holes.place import Answer, Place
from benchmarks.holes.sources import Row, seen
from benchmarks.mutants import operators
from benchmarks.mutants.trial import plain
from flashcore.errors import FlashcoreError
from flashcore.gate import baseline, loosened
from flashcore.records import store
from flashcore.suites.load import load

# --- 3. the base revision -------------------------------------------------------------------------

_WAIVER = '\n[[waiver]]\nbudget = "{budget}"\naccepted = {value}\nreason = "later"\n'
_RULE = '\n[[gate.rule]]\nfacts = ["{fact}"]\nseverity = "{severity}"\nreason = "later"\n'
_KEYS = (
    'severity = "goal"',
    'kernels = ["nothing_*"]',
    'archs = ["sm_80"]',
    'shapes = ["small"]',
    'variants = ["wide"]',
    'device = "NVIDIA B200"',
    "stretch = 1",
    'kernels = ["*"]',
    'severity = "limit"',
    'archs = ["*"]',
)


def loosened_limits(place: Place, chance: random.Random, harmless: bool) -> Row:
    """3. An edit of the manifest or baseline: whatever is looser than in the base revision is listed."""
    manifest, lines_of = place.manifest, place.suite / "baseline.txt"
    kept = load(place.suite), baseline.read(lines_of)
    text = manifest.read_text()
    kind = "comment" if harmless else chance.choice(("line", "line", "line", "baseline", "baseline", "table", "key"))
    what = kind
    if kind == "comment":
        path = chance.choice((manifest, lines_of))
        path.write_text(path.read_text() + "# nothing\n")
    elif kind in ("line", "baseline"):
        path = manifest if kind == "line" else lines_of
        first = text.index("[[budget]]") if kind == "line" and chance.random() < 0.7 else 0
        edits = operators.lines(path.read_text(), lambda i, _: path.read_text().count("\n", 0, first) <= i)
        by_kind: dict[str, list[operators.Edit]] = {}
        for edit in edits:
            by_kind.setdefault(edit.operator, []).append(edit)
        edit = chance.choice(by_kind[chance.choice(sorted(by_kind))])
        path.write_text(edit.text)
        what = f"{path.name}:{edit.line} {edit.operator}: {edit.before[:50]} → {edit.after[:50]}"
    elif kind == "table":
        budget = chance.choice([b.name for b in kept[0].budgets] + ["baseline_registers", "correct", "as_planned"])
        fact = chance.choice(("*", "registers", "spill_*", "s*", "sass_*"))
        more = chance.choice((_WAIVER, _RULE)).format(
            budget=budget,
            value=chance.choice((0, 4, 64, 1e6)),
            fact=fact,
            severity=chance.choice(("ignore", "show", "fail")),
        )
        manifest.write_text(text + more)
        what = " ".join(more.split())
    else:
        at = chance.choice([m.end() for m in re.finditer(r"\[\[budget\]\]\n", text)])
        key = chance.choice(_KEYS)
        manifest.write_text(text[:at] + key + "\n" + text[at:])
        what = f"{text[at:].splitlines()[0]}: {key}"
    answer = place.gate("--base", "HEAD")
    if harmless or answer.code:
        return what, *seen(answer, harmless)
    now = load(place.suite), baseline.read(lines_of)
    if plain(kept[0]) == plain(now[0]) and kept[1] == now[1]:
        return what, "equivalent", "the same limits"
    if not loosened.everything(kept, now, date.today()) and (stricter := loosened.everything(now, kept, date.today())):
        return what, "equivalent", f"stricter: {stricter[0].key}: {stricter[0].text[:80]}"
    return what, "left", f"{answer.words} nothing is looser: see the kinds below"


# --- 4. records -----------------------------------------------------------------------------------

_FILES = (store.HEADER, store.FACTS, store.SAMPLES)


def edited_records(place: Place, chance: random.Random, harmless: bool) -> Row:
    """4. A record edited by hand: as it is, with new hashes, and so in a run that the base does not have."""
    how = chance.choice(("plain", "sealed", "new and sealed", "new and sealed"))
    (run,) = place.profiles.iterdir()
    if "new" in how:
        new = run.with_name("20260103T030405Z-0002")
        run.rename(new)
        header = json.loads((new / store.HEADER).read_bytes())
        (new / store.HEADER).write_text(json.dumps({**header, "id": new.name, "created": "2026-01-03T03:04:05Z"}))
        store.seal(new)
        run = new
    kept = store.read(run)
    file = run / chance.choice(_FILES)
    data = file.read_bytes()
    packed = file.suffix == ".gz"
    whole = json.loads(gzip.decompress(data) if packed else data)
    what = f"{how}: {file.name}"
    if not harmless:
        leaves = [x for x in operators.leaves(whole) if x[:1] != ("subjects",)]
        top: dict[Any, list[Any]] = {}
        for leaf in leaves:  # each table of the header, and each kind of fact, gets its turn
            name = whole["facts"][leaf[1]][1] if leaf[0] == "facts" else leaf[0]
            top.setdefault((name, leaf[2] if leaf[0] == "facts" and len(leaf) > 2 else 0), []).append(leaf)
        leaf = chance.choice(top[chance.choice(sorted(top, key=str))])
        operator, old, new_value = operators.changed_leaf(whole, leaf, chance)
        place_text = str(whole["facts"][leaf[1]][:2]) if leaf[0] == "facts" else ""
        what += f" {'.'.join(map(str, leaf))} {place_text} {operator}: {str(old)[:30]} → {str(new_value)[:30]}"
        text = json.dumps(whole).encode()
        file.write_bytes(gzip.compress(text, mtime=0) if packed else text)
    if how != "plain":
        store.seal(run)
    words = ["--require", "timing", *(["--base", "HEAD"] if how == "sealed" else [])]
    answer = place.gate(*words)
    if harmless or answer.code:
        return what, *seen(answer, harmless)
    if notes := {*answer.report["notes"]} - {*_notes(place, run.name)}:
        return what, "noticed", f"note: {notes}"[:200]
    try:
        now = store.read(run)
    except FlashcoreError as error:
        return what, "wrong", f"passed, though it is refused: {error}"[:200]
    same = list(now.facts) == list(kept.facts) and now.samples == kept.samples
    if same and plain(now.suite) == plain(kept.suite) and now.keys == kept.keys and now.outcomes == kept.outcomes:
        return what, "equivalent", "no fact, sample, limit, key or outcome differs"
    return what, "left", "a legal value in a new run whose hashes were written again"


def _notes(place: Place, run: str) -> list[str]:
    """The notes of a gate that joined the intact run."""
    return [re.sub(r"\d{8}T\d{6}Z-\w{4}", run, note) for note in place.passing.report["notes"]]


# --- 5. the build folder --------------------------------------------------------------------------


def edited_caches(place: Place, chance: random.Random, harmless: bool) -> Row:
    """5. A file of the build folder is damaged, edited, exchanged or made writable: it must not be believed."""
    files = sorted(p for p in place.build.rglob("*") if p.is_file())
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(re.sub(r"[0-9a-f]{16}", "", path.name), []).append(path)
    path = chance.choice(kinds[chance.choice(sorted(kinds))])
    data = path.read_bytes()
    how = (
        "none"
        if harmless
        else chance.choice(
            ("leaf", "leaf", "leaf", "bit", "cut", "empty", "absent", "exchanged", "others may write", "text")
        )
    )
    if how == "leaf" and path.suffix != ".json":
        how = chance.choice(("bit", "text", "exchanged"))
    if how == "text" and not re.search(rb"\d", data):
        how = "empty"
    if how == "leaf":
        whole = json.loads(data)
        leaves = [x for x in operators.leaves(whole) if x[0] not in ("digest",)]
        leaf = chance.choice(leaves)
        how = f"leaf {'.'.join(map(str, leaf))[:60]}: {operators.changed_leaf(whole, leaf, chance)[0]}"
        path.write_text(json.dumps(whole, separators=(",", ":"), ensure_ascii=False))
    elif how == "bit":
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
    elif how == "cut":
        path.write_bytes(data[: chance.randrange(len(data))])
    elif how == "text":
        number = chance.choice([*re.finditer(rb"\d+", data)])
        path.write_bytes(data[: number.start()] + b"0" * len(number[0]) + data[number.end() :])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "absent":
        path.unlink()
    elif how == "exchanged":
        others = [p for p in files if p.suffix == path.suffix and p.read_bytes() != data]
        shutil.copyfile(chance.choice(others or files), path)
    elif how == "others may write":
        chance.choice((path, path.parent)).chmod(0o777)
    answer = place.gate("--require", "timing", "--base", "HEAD")
    what = f"{re.sub(r'-?[0-9a-f]{16}', '', str(path.relative_to(place.build)))} {how}"
    if answer.is_defect:
        return what, "wrong", answer.words
    same = answer.values == place.passing.values
    return (
        what,
        "equivalent" if same else "noticed" if answer.code else "wrong",
        ("the report of a clean build" if same else answer.words),
    )


# --- 6. freshness ---------------------------------------------------------------------------------

_READS = {  # how → (the problem's line, the file that it reads)
    "import": ("import helper_{n}", "helper_{n}.py"),
    "from a package": ("from pack_{n} import core", "pack_{n}/core.py"),
    "dotted": ("import pack_{n}.deep.part", "pack_{n}/deep/part.py"),
    "relative, inside": ("import pack_{n}", "pack_{n}/inner.py"),
    "importlib": ("import importlib; importlib.import_module('late_{n}')", "late_{n}.py"),
    "spec": (
        "import importlib.util as u; s = u.spec_from_file_location('x', HERE / 'odd_{n}.txt.py'); "
        "s.loader.exec_module(u.module_from_spec(s))",
        "odd_{n}.txt.py",
    ),
    "sys.path": ("import sys; sys.path.insert(0, str(HERE / 'lib')); import elsewhere_{n}", "lib/elsewhere_{n}.py"),
    "exec": ("exec((HERE / 'code_{n}.inc').read_text())", "code_{n}.inc"),
    "data": ("WEIGHTS = open(HERE / 'weights_{n}.bin', 'rb').read()", "weights_{n}.bin"),
    "json": ("import json; TABLE = json.load(open(HERE / 'table_{n}.json'))", "table_{n}.json"),
    "os.open": ("import os; os.read(os.open(HERE / 'raw_{n}.bin', os.O_RDONLY), 9)", "raw_{n}.bin"),
    "a thread": (
        "import threading; t = threading.Thread(target=(HERE / 'own_{n}.bin').read_bytes); t.start(); t.join()",
        "own_{n}.bin",
    ),
    "a link": ("(HERE / 'link_{n}').read_bytes()", "target_{n}.bin"),
    "sqlite": ("import sqlite3; sqlite3.connect(HERE / 'base_{n}.db').execute('select 1')", "base_{n}.db"),
    "a child process": ("import subprocess; subprocess.run(['cat', str(HERE / 'child_{n}.bin')])", "child_{n}.bin"),
    "mmap": (
        "import mmap; f = open(HERE / 'map_{n}.bin', 'rb'); mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[:1]",
        "map_{n}.bin",
    ),
    "the folder's list": ("NAMES = sorted(p.name for p in HERE.glob('*_{n}.list'))", "new_{n}.list"),
}
_CHILD = """
import json, sys
from flashcore.runner import opened_files, problem_file as p
opened_files.watch()
p.load_file(sys.argv[1] + "/problem.py")
print(json.dumps(opened_files.reads(sys.argv[1])))
"""
_SETTINGS = (
    "seeds = [0, 1]",
    "seeds = [1]",
    "repeats = 9",
    'rank_by = "cold"',
    'tolerance = "fp32"',
    "N = 4100",
    "text",
)


def changed_inputs(place: Place, chance: random.Random, harmless: bool) -> Row:
    """6. What the problem's Python code read while it ran, or a setting of its shape, changes: the case is stale."""
    if chance.random() < 0.25 and not harmless:
        return _changed_settings(place, chance)
    how, (line, file) = chance.choice([*_READS.items()])
    n = chance.randrange(100)
    path = place.suite / file.format(n=n)
    path.parent.mkdir(parents=True, exist_ok=True)
    for package in path.relative_to(place.suite).parents[:-1]:
        if package.name != "lib":
            (place.suite / package / "__init__.py").write_text("")
    if how == "relative, inside":
        (path.parent / "__init__.py").write_text("from . import inner\n")
    if how == "sqlite":
        sqlite3.connect(path).execute("create table t (x)")
    else:
        path.write_text({".json": "{}"}.get(path.suffix, "1\n"))
    if how == "a link":
        (place.suite / f"link_{n}").symlink_to(path)
    problem = place.suite / "problem.py"
    text = problem.read_text()
    head = "\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
    where = text.index("\ndef ")
    problem.write_text(f"{text[:where]}{head}{line.format(n=n)}\n{text[where:]}")
    (run,) = place.profiles.iterdir()
    shutil.rmtree(run)
    done = subprocess.run([sys.executable, "-c", _CHILD, str(place.suite)], capture_output=True, text=True, check=True)
    place.record(reads=json.loads(done.stdout.splitlines()[-1]))
    before = place.gate("--require", "timing")
    if how == "a child process":  # what it reads cannot be told
        return how, *seen(before, False)
    if before.code:
        return how, "wrong", f"before the change: {before.words}"
    if not harmless:
        path.write_bytes(b"2\n") if how == "sqlite" or chance.random() < 0.7 else path.unlink()
        if how == "the folder's list":
            path.unlink(missing_ok=True)
    return how, *seen(place.gate("--require", "timing"), harmless)


def _changed_settings(place: Place, chance: random.Random) -> Row:
    what = chance.choice(_SETTINGS)
    key = what.partition(" =")[0]
    if key == "text":
        problem = place.suite / "problem.py"
        edit = chance.choice(operators.code(problem.read_text()))
        problem.write_text(edit.text)
        what = f"problem.py:{edit.line} {edit.operator}: {edit.before[:40]} → {edit.after[:40]}"
    elif key == "seeds":
        place.edit(place.manifest, "seeds = [0]", what)
    elif key == "tolerance":
        place.edit(place.manifest, 'tolerance = "rounded_once"', 'tolerance = "exact"')
        problem = place.suite / "problem.py"
        problem.write_text(problem.read_text().replace("TOLERANCES = {", 'TOLERANCES = {"exact": "other", '))
    elif key == "N":
        place.edit(place.manifest, "N = 4096", what)
    else:
        place.edit(place.manifest, "params = { N = 4096 }", f"params = {{ N = 4096 }}\n{what}")
    return f"setting: {what}", *seen(place.gate("--require", "timing"), False)


# --- 7. texts -------------------------------------------------------------------------------------

_TEXTS = (
    "\x1b[2J\x1b[Hgate passed",
    "\x1b]0;title\x07",
    "\x1b]8;;http://e.org\x1b\\link\x1b]8;;\x1b\\",
    "a\rgate passed",
    "\x9b31m",
    "\u202egate\u202c",
    "a\x00b",
    "a\x08\x08\x08b",
    "\x1bP1;2q\x1b\\",
    "::error::forged",
    "\n::set-output name=x::1",
    "%0A::error::x",
    "=HYPERLINK(1)",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1",
    "<script>alert(1)</script>",
    "]]><x/>",
    "&lt;",
    "| a | b |",
    "`x`",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "\u2028x",
    "\x7f",
    "\x85x",
)
_RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def drawn_texts(place: Place, chance: random.Random, harmless: bool) -> Row:
    """7. Control characters and markup from a plan, a compiler, a manifest or a file's name reach no reader raw."""
    text = "plain words" if harmless else chance.choice(_TEXTS)
    via = chance.choice(
        (
            "plan's error",
            "#error",
            "#line",
            "#pragma message",
            "budget's source",
            "waiver's reason",
            "title",
            "technique",
            "plan's output",
            "kernel's name",
        )
    )
    source = place.suite / "scale.cu"
    literal = "".join(f"\\{byte:03o}" for byte in text.encode())
    toml = json.dumps(text, ensure_ascii=True).replace("\\ud800", "?").replace("\x7f", "\\u007f")
    if via == "plan's error":
        place.edit(source, "return flashcore::Plan()", f'flashcore::Plan p;\n  p.error = "{literal}";\n  return p')
    elif via == "plan's output":
        place.edit(
            source,
            "#include <flashcore/problem.h>",
            "#include <flashcore/problem.h>\n#include <cstdio>\n#include <cstdlib>",
        )
        place.edit(
            source, "return flashcore::Plan()", f'fputs("{literal}", stderr);\n  abort();\n  return flashcore::Plan()'
        )
    elif via == "kernel's name":
        place.edit(source, '{.kernel = "scale_kernel"', f'{{.kernel = "{literal}"')
    elif via == "#line":
        source.write_text(f'#line 1 "{literal}"\n#error here\n{source.read_text()}')
    elif via in ("#error", "#pragma message"):
        words = "".join(c for c in text if c not in '\n\x00"\\')
        line = f"#error {words}\n" if via == "#error" else f'#pragma message("{words}")\n'
        source.write_text(line + source.read_text())
    elif via == "budget's source":
        place.edit(place.manifest, 'source = "measured"', f"source = {toml}")
    elif via == "waiver's reason":
        place.edit(place.manifest, 'reason = "the compiler decides"', f"reason = {toml}")
    elif via == "title":
        place.edit(place.manifest, 'title = "Scale a vector"', f"title = {toml}")
    else:
        place.edit(place.manifest, 'technique = "one element a thread"', f"technique = {toml}")
    form = chance.choice(("table", "markdown", "github", "junit", "sarif", "gitlab", "json"))
    where = (*place.where, "--variant", "plain")
    answer = place.flashcore("gate", *where, "--format", form, env={"CUDA_ARCH": "9.0a", "GITHUB_ACTIONS": "true"})
    facts = Answer(0, "", "")
    if chance.random() < 0.3:
        facts = place.flashcore("facts", str(next(place.profiles.iterdir())))
    whole = answer.out + answer.err + facts.out
    what = f"{text!r} as {via} in {form}"
    if raw := _RAW.search(whole.replace("\r\n", "\n")):
        return what, "wrong", f"{raw[0]!r} in {whole[max(0, raw.start() - 60) : raw.end() + 20]!r}"
    for line in answer.out.splitlines() if form == "github" else ():
        if line.startswith("::") and not re.match(r"::(error|warning|notice|group|endgroup|debug)\b[^:]*::", line):
            return what, "wrong", f"a command of the runner: {line[:100]}"
        if "forged" in line and line.startswith("::error::forged"):
            return what, "wrong", line
    for line in answer.err.splitlines():
        if line.startswith("::"):
            return what, "wrong", f"a command of the runner on standard error: {line[:100]}"
    for cell in re.findall(r"(?:^|,)\"?([=+@][^,]*)", facts.out, re.M):
        return what, "wrong", f"a formula in a cell: {cell[:60]}"
    if form == "junit":
        import xml.etree.ElementTree as tree

        tree.fromstring(answer.out) if answer.out else None
    if answer.is_defect:
        return what, "wrong", answer.words
    return what, "noticed" if not harmless else "equivalent", f"no raw character; {answer.words[:80]}"


# --- 8. devices -----------------------------------------------------------------------------------


def written_targets(place: Place, chance: random.Random, harmless: bool) -> Row:
    """8. Output goes to devices, pipes, links and folders: only a regular file is replaced."""
    folder = place.folder / "out"
    folder.mkdir()
    kind = (
        "absent"
        if harmless
        else chance.choice(
            (
                "null",
                "full",
                "pipe",
                "link",
                "dangling link",
                "link to a device",
                "loop",
                "folder",
                "stdout",
                "fd 1",
                "hard link",
                "read-only",
                "no folder",
                "long name",
                "socket",
            )
        )
    )
    path = folder / {"stdout": "x", "long name": "n" * 300}.get(kind, "target")
    target = folder / "behind"
    if kind in ("null", "full"):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3 if kind == "null" else 7))
    elif kind == "pipe":
        os.mkfifo(path)
        threading.Thread(target=lambda: path.read_bytes(), daemon=True).start()
    elif kind in ("link", "dangling link", "link to a device", "loop"):
        if kind == "link":
            target.write_text("old")
        elif kind == "link to a device":
            os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.symlink_to(path if kind == "loop" else target)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("stdout", "fd 1"):
        path = Path("/dev/stdout" if kind == "stdout" else "/proc/self/fd/1")
    elif kind == "hard link":
        target.write_text("old")
        os.link(target, path)
    elif kind == "read-only":
        path.write_text("old")
        path.chmod(0o400)
    elif kind == "no folder":
        path = folder / "missing" / "target"
    elif kind == "socket":
        import socket

        socket.socket(socket.AF_UNIX).bind(str(path))

    def looks() -> list[Any]:
        return [
            (p.name, stat.S_IFMT(p.lstat().st_mode), p.lstat().st_rdev, p.is_symlink() and os.readlink(p))
            for p in sorted(folder.iterdir())
            if p.name in ("target", "behind")
        ]

    before = looks()
    form = chance.choice(("json", "sarif", "junit", "markdown", "gitlab", "table"))
    command = chance.choice(("gate", "gate", "facts", "runs"))
    run = [str(next(place.profiles.iterdir())), "-o", str(path)]
    words = {"gate": [*place.where, "-q", "--format", f"{form}={path}"], "facts": run, "runs": ["pack", *run]}[command]
    answer = place.flashcore(command, *words)
    after = looks()
    what = f"{command} ({form}) into {kind}"
    changed = [a for a in before if a not in after]
    if kind in ("read-only",) and answer.code:
        changed = []
    expected = {"target", "behind", "missing", "n" * 300}
    left = sorted(p.name for p in folder.iterdir() if p.name not in expected)
    if changed or left:
        return what, "wrong", f"{before} → {after}, left {left}: {answer.words}"
    if answer.is_defect:
        return what, "wrong", answer.words
    if kind in ("absent", "link", "dangling link") and answer.code == 0 and not path.read_bytes():
        return what, "wrong", "nothing was written"
    return what, "equivalent" if harmless else "noticed", f"as before; {answer.words[:80]}"
