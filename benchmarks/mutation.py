"""Would our tests notice a defect? Random mutants of the modules that judge, each against its module's own tests.

    python -m benchmarks.mutation [--sample N] [--seed N] [--only MODULE ...] [--workers N]
    python -m benchmarks.mutation --again FILE     # what survived in FILE, against the present tests

Cosmic Ray says where a module can be mutated and how: comparisons, numbers, operators, conditions, loops, caught
exceptions. Places are drawn at random, each as likely as any other, then one mutation of each. Annotations and
decorators are left out: what they change is not what runs. A mutant that its module's tests pass is a survivor;
``mutation_why.json`` says of each that is left why none can notice it. What a test written since the draw kills keeps
a mark: the tests were not chosen at random, so such a sample says less of mutants that nobody has drawn.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import functools
import json
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import raw

PACKAGE = "harness/flashcore"
#: Module → the test files that are its own, where they are not those of its name.
MODULES: dict[str, tuple[str, ...]] = {
    "explain/diff": (),
    "plugins/compare/differences": (),
    "explain/clocks": (),
    "explain/explain": (),
    "explain/ladder": (),
    "explain/limiter": (),
    "explain/measured_roofs": (),
    "explain/predictions": (),
    "explain/roofline": (),
    "gate/baseline": ("gate/test_baseline.py", "gate/test_regressions.py"),
    "gate/expand": ("gate/test_judge.py",),
    "gate/judge": (),
    "gate/locate": (),
    "gate/regressions": ("gate/test_regressions.py", "gate/test_baseline.py"),
    "gate/wording": ("gate/test_formats.py",),
    "plugins/formats/github": ("plugins/formats/test_formats.py",),
    "gate/formats/json": ("gate/test_formats.py",),
    "plugins/formats/junit": ("plugins/formats/test_formats.py",),
    "gate/formats/markdown": ("gate/test_formats.py",),
    "plugins/formats/sarif": ("plugins/formats/test_formats.py",),
    "chips/occupancy": (),
    "model/intervals": (),
    "plugins/against/decide": (),
    "plugins/against/match_cases": (),
    "records/freshness": (),
    "records/soundness": (),
    "measure/bench/statistics": (),
    "measure/workers/accuracy": (),
    "readers/ncu/raw_page": (),
    "measure/profile/ncu_facts": ("measure/profile/test_ncu_facts.py", "readers/test_phases.py"),
    "readers/phases": (),
}
RESULTS = Path(__file__).parent / "results" / "mutation.json"
WHY = Path(__file__).with_name("mutation_why.json")
GOAL = 0.85
_SLACK = 5.0  # seconds that a mutant gets beside ten times what its tests take


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutation: where it is, what it does, and the line before and after.

    A line that its module has more than once comes with as many lines above it as tell it apart.
    """

    module: str
    line: int
    operator: str
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """The same for the same mutation of the same text, wherever its line moves."""
        return f"{self.module}: {self.operator}: {self.before} → {self.after}"


def tests_of(module: str) -> list[str]:
    """The test files of a module."""
    folder, _, name = module.rpartition("/")
    return [f"tests/{t}" for t in MODULES[module] or (f"{folder}/test_{name}.py",)]


def places(source: str) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    """(line, column) → what can be done there: operator, occurrence in the module, line."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    passive = _passive(source)
    found: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for name in sorted(operator_names()):
        if name.endswith(("VariableReplacer", "VariableInserter", "RemoveDecorator")):
            continue
        operator = get_operator(name)()
        count = 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if not any(a <= (line, column) <= b for a, b in passive):
                    found.setdefault((line, column), []).append((name, count, line))
                count += 1
    return found


def _passive(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations and decorators are."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found += node.decorator_list
        if isinstance(node, ast.FunctionDef):
            found.append(node.returns)
        if isinstance(node, ast.AnnAssign | ast.arg):
            found.append(node.annotation)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("Value",):
            found.append(node.value)
    return [
        ((n.lineno, n.col_offset), (n.end_lineno or n.lineno, n.end_col_offset or n.col_offset))
        for n in found
        if n is not None
    ]


def drawn(sources: Mapping[str, str], sample: int, seed: int) -> list[Mutant]:
    """As many mutants, at places drawn at random over all modules."""
    chance = random.Random(seed)
    everywhere = [(m, where, ways) for m, text in sources.items() for where, ways in sorted(places(text).items())]
    chosen = chance.sample(everywhere, min(sample, len(everywhere)))
    return [_mutant(module, sources[module], *chance.choice(ways)) for module, _, ways in chosen]


def _mutant(module: str, source: str, operator: str, occurrence: int, line: int) -> Mutant:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = mutate_code(source, get_operator(operator)(), occurrence)
    if text is None:
        raise SystemExit(f"{module}:{line}: expected a place for {operator}, found none")
    old, new = source.splitlines(), text.splitlines()
    at = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), line - 1)
    above = _above(old, at)
    before, after = (" ".join([*above, lines[at].strip()]) for lines in (old, new))
    return Mutant(module, at + 1, operator.removeprefix("core/"), before, after, text)


def _above(lines: Sequence[str], at: int) -> list[str]:
    """The lines above a line that tell it from its like."""
    stripped = [line.strip() for line in lines]
    start, like = at, [i for i, line in enumerate(stripped) if line == stripped[at]]
    while len(like) > 1 and start > 0:
        start -= 1
        like = [i for i in like if i + start >= at and stripped[i - at + start] == stripped[start]]
    return stripped[start:at]


def found_again(row: Mapping[str, Any], source: str) -> Mutant | None:
    """The mutant of a row in the present text of its module; None where its line is no longer there."""
    lines = source.splitlines()
    for ways in places(source).values():
        for operator, occurrence, line in ways:
            if operator == f"core/{row['operator']}" and row["before"].endswith(lines[line - 1].strip()):
                mutant = _mutant(row["module"], source, operator, occurrence, line)
                if mutant.name == _key(row):
                    return mutant
    return None


class Worker:
    """A process that tests mutants in its own copy of the sources."""

    def __init__(self, copy: Path) -> None:
        script = Path(__file__).with_name("mutation_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(copy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, module: str, text: str | None, limit: float) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        question = {"file": f"{PACKAGE}/{module}.py", "text": text, "tests": tests_of(module), "limit": limit}
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker for {module} ended")
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def copy_of(root: Path, folder: Path) -> Path:
    """The sources and tests, alone."""
    for name in ("harness", "tests", "benchmarks", "kernels", "examples"):
        shutil.copytree(root / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "Makefile", "README.md", "docs"):
        (folder / name).symlink_to(root / name)
    (folder / "profiles").symlink_to(root / "profiles")
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if fewer than the goal are killed."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda found: 0 if share(found) >= GOAL else 1)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="how many mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="at once (default: 2)")
    parser.add_argument("--only", nargs="+", default=None, choices=sorted(MODULES), metavar="MODULE")
    parser.add_argument("--again", metavar="FILE", help="draw nothing: try those again that survived in FILE")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Draws the mutants and tests each."""
    machine = raw.machine()
    modules = options.only or sorted(MODULES)
    sources = {m: (raw.ROOT / PACKAGE / f"{m}.py").read_text(encoding="utf-8") for m in modules}
    rows: list[dict[str, Any] | Mutant] = []
    if not options.again:
        rows += drawn(sources, options.sample, options.seed)
    for row in raw.read(Path(options.again), "mutation")["mutants"] if options.again else ():
        # Tests that are added revive nothing, and kill nothing that is the same as the original.
        open_still = row["outcome"] == "survived" and row["module"] in sources and not _equivalent(row)
        rows.append(found_again(row, sources[row["module"]]) or row | {"outcome": "gone"} if open_still else row)
    with tempfile.TemporaryDirectory(prefix="flashcore-mutation-") as name:
        pool: queue.Queue[Worker] = queue.Queue()
        workers = [Worker(copy_of(raw.ROOT, Path(name) / str(i))) for i in range(options.workers)]
        for worker in workers:
            pool.put(worker)
        with concurrent.futures.ThreadPoolExecutor(options.workers) as threads:
            todo = sorted({m.module for m in rows if isinstance(m, Mutant)})
            seconds = dict(threads.map(lambda m: (m, _plain(pool, m)), todo))
            tried = list(threads.map(lambda m: m if isinstance(m, dict) else _tried(pool, m, seconds[m.module]), rows))
        if options.again:
            tried = [r if m is r else r | {"drawn": "survived"} for m, r in zip(rows, tried, strict=True)]
        for worker in workers:
            worker.close()
    return {"machine": machine, "unmutated_seconds": seconds, "mutants": tried}


def _plain(pool: queue.Queue[Worker], module: str) -> float:
    """Seconds that a module's tests take as it is. They have to pass."""
    worker = pool.get()
    try:
        said = worker.ask(module, None, 300)
    finally:
        pool.put(worker)
    if said["outcome"] != "passed":
        raise SystemExit(f"{module}: expected its tests to pass before anything is mutated, found\n{said['said']}")
    return float(said["seconds"])


def _tried(pool: queue.Queue[Worker], mutant: Mutant, plain: float) -> dict[str, Any]:
    worker = pool.get()
    try:
        said = worker.ask(mutant.module, mutant.text, 10 * plain + _SLACK)
    finally:
        pool.put(worker)
    outcome = {"passed": "survived", "failed": "killed", "timeout": "killed"}[said["outcome"]]
    row = {"module": mutant.module, "line": mutant.line, "operator": mutant.operator, "before": mutant.before,
           "after": mutant.after, "outcome": outcome, "seconds": said["seconds"]}  # fmt: skip
    print(f"{outcome:8} {mutant.module}:{mutant.line} {mutant.before} → {mutant.after}", file=sys.stderr, flush=True)
    return row


@functools.cache
def reasons() -> dict[str, str]:
    """Survivor → why no test can notice it, as somebody wrote it."""
    return dict(json.loads(WHY.read_text(encoding="utf-8"))) if WHY.is_file() else {}


def _key(row: Mapping[str, Any]) -> str:
    """As :attr:`Mutant.name`."""
    return f"{row['module']}: {row['operator']}: {row['before']} → {row['after']}"


def why(row: Mapping[str, Any]) -> str:
    """What is said of a survivor; empty if nobody has looked at it."""
    return reasons().get(_key(row), "")


def _equivalent(row: Mapping[str, Any]) -> bool:
    return why(row).startswith("equivalent")


def share(found: raw.Found) -> float:
    """How many of the mutants that can be noticed are."""
    rows = found["mutants"]
    killed = sum(r["outcome"] == "killed" for r in rows)
    missed = sum(r["outcome"] == "survived" and not _equivalent(r) for r in rows)
    return float(killed / max(1, killed + missed))


def table(found: raw.Found) -> list[str]:
    """What was found, for reading: each module, then each survivor."""
    return list(_table(found))


def _table(found: raw.Found) -> Iterator[str]:
    rows = found["mutants"]
    yield found["machine"]
    by_module = Counter(r["module"] for r in rows)
    for module in sorted(by_module):
        killed = sum(r["outcome"] == "killed" for r in rows if r["module"] == module)
        yield f"{module:28} {killed:4} of {by_module[module]:4} killed"
    left = [r for r in rows if r["outcome"] == "survived"]
    killed, gone = (sum(r["outcome"] == o for r in rows) for o in ("killed", "gone"))
    equal, since = sum(map(_equivalent, left)), sum(r["outcome"] == "killed" and "drawn" in r for r in rows)
    yield (
        f"{killed} of {len(rows)} killed{f', {since} of them by tests written since the draw' if since else ''}, "
        f"{equal} equivalent{f', {gone} of lines that are gone' if gone else ''}: "
        f"{100 * share(found):.1f} % of the others; goal {100 * GOAL:.0f} %"
    )
    for r in left:
        yield f"{r['module']}:{r['line']}  {r['before']}  →  {r['after']}: {why(r) or 'nobody has looked at it'}"


if __name__ == "__main__":
    sys.exit(main())
