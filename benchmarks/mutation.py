"""Would our tests notice a defect? Random mutants of the whole package, each against its module's own tests.

    python -m benchmarks.mutation [--sample N] [--seed N] [--only MODULE ...] [--workers N] [--minutes N]
    python -m benchmarks.mutation --again FILE     # what survived in FILE, against the present tests

Cosmic Ray says where a module can be mutated and how: comparisons, numbers, operators, conditions, loops, caught
exceptions. Places are drawn at random, each as likely as any other, then one mutation of each. Annotations and
decorators are left out: what they change is not what runs. So are mutants that do not compile. Numbers assigned to
names of a module are tuning constants, which are counted separately. A mutant that its module's tests pass is a
survivor; ``mutation_why.json`` says of each that is left why none can notice it. What a test written since the draw
kills keeps a mark: the tests were not chosen at random, so such a sample says less of mutants that nobody has drawn.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import functools
import importlib.util
import json
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import raw

PACKAGE = "harness/flashcore"
#: Module → test files that test it too, or instead of its folder's where none has its name.
TESTS: dict[str, tuple[str, ...]] = {
    "__init__": ("test_api.py", "test_imports.py"),
    "__main__": ("cli/test_main.py",),
    "chips/occupancy": ("test_plan_of_each_arch.py",),
    "cli/baseline": ("gate/test_baseline.py", "cli/test_main.py"),
    "cli/progress": ("cli/test_terminal.py",),
    "cli/roofs": ("explain/test_measured_roofs.py",),
    "errors": ("cli/test_main.py",),
    "explain/comparison": ("explain/test_compare_records.py", "features/compare/test_timed.py"),
    "explain/compare_records": ("explain/test_changes.py",),
    "explain/resources": ("explain/test_limiter.py",),
    "gate/baseline": ("gate/test_regressions.py",),
    "gate/expand": ("gate/test_judge.py",),
    "gate/judge": ("gate/test_regressions.py",),
    "gate/regressions": ("gate/test_baseline.py",),
    "gate/wording": ("gate/test_formats.py",),
    "stages/bench/child": ("stages/bench/test_bench.py",),
    "runner/driver": ("stages/bench/test_bench.py",),
    "stages/bench/message": ("stages/bench/test_bench.py",),
    "stages/bench/sets": ("stages/bench/test_proof.py", "stages/bench/test_bench.py"),
    "stages/check/child": ("stages/check/test_check.py",),
    "stages/context": ("stages/test_context.py",),
    "machine/toolchain": ("cli/test_gate.py",),
    "stages/profile/ncu_facts": ("readers/test_phases.py",),
    "runner/child": ("runner/test_queue.py",),
    "runner/hung_variants": ("runner/test_queue.py", "runner/test_journal.py"),
    "runner/journal": ("runner/test_queue.py",),
    "runner/process": ("runner/test_queue.py", "runner/test_pool.py"),
    "runner/queue": ("runner/test_process.py", "runner/test_pool.py"),
    "runner/references": ("stages/check/test_check.py", "runner/test_kernel_call.py"),
    "model/catalogue": ("stages/profile/test_ncu_facts.py", "records/test_store.py"),
    "model/cause": ("model/test_causes.py",),
    "model/causes": ("model/test_causes.py", "explain/test_verdict_note.py", "records/test_freshness.py"),
    "model/files": ("report/test_report.py",),
    "model/intervals": ("explain/test_roofline.py", "records/test_soundness.py"),
    "model/gate_policy": ("gate/test_baseline.py",),
    "model/plugin": ("test_extensions.py",),
    "model/progress": ("explain/test_predictions.py", "gate/test_judge.py"),
    "model/record": (
        "test_one_file_many_kernels.py",
        "records/test_store.py",
        "records/test_soundness.py",
        "test_api.py",
        "explain/test_compare_records.py",
    ),
    "model/suite": ("pipeline/test_run.py", "suites/test_load.py"),
    "pipeline/judging": ("gate/test_baseline.py", "cli/test_gate.py"),
    "pipeline/opening": ("cli/test_gate.py", "pipeline/test_run.py"),
    "pipeline/pages": ("features/compare/test_page.py",),
    "pipeline/plugins": ("test_extensions.py",),
    "pipeline/profile": ("pipeline/test_run.py",),
    "pipeline/make_record": ("features/runs/test_travel.py", "pipeline/test_run.py"),
    "pipeline/revision": ("pipeline/test_base.py",),
    "pipeline/measure_roofs": ("explain/test_measured_roofs.py",),
    "features/reports/assemble": ("features/reports/test_csv_pages.py",),
    "features/reports/execution": ("features/reports/test_capture.py",),
    "features/compare/bench_options": ("features/compare/test_timed.py",),
    "features/compare/command": ("features/compare/test_page.py", "test_examples.py"),
    "features/reports/read": ("features/reports/test_ncu_rep.py", "features/reports/test_assemble.py"),
    "records/slugs": ("features/reports/test_import_command.py", "features/reports/test_csv_pages.py"),
    "features/reports/report_child": ("features/reports/test_ncu_rep.py",),
    "readers/compiler_log": ("build/test_build.py",),
    "readers/host_code": ("build/test_build.py",),
    "readers/ncu/numerals": ("readers/ncu/test_raw_page.py", "features/reports/test_csv_pages.py"),
    "readers/ncu/results": ("readers/ncu/test_raw_page.py", "stages/profile/test_ncu_facts.py"),
    "readers/sass": ("readers/test_spills.py", "readers/test_phases.py", "build/test_static_facts.py"),
    "records/assemble": ("pipeline/test_run.py",),
    "records/freshness": ("test_problem_reads.py",),
    "records/lookup": ("cli/test_gate.py", "records/test_packed.py"),
    "records/store": ("cli/test_main.py",),
    "report/case_view": ("report/test_report.py",),
    "suites/budgets": ("suites/test_parts.py", "suites/test_load.py"),
    "suites/schema": ("suites/test_load.py", "suites/test_parts.py"),
    "suites/variants": ("suites/test_load.py",),
}
RESULTS = Path(__file__).parent / "results" / "mutation.json.xz"
WHY = Path(__file__).with_name("mutation_why.json")
GOAL = 0.9
#: Modules whose mutants need a build of their own; the tests of others share one.
_BUILDING = ("build/", "machine/toolchain")
_LIMIT = 240.0  # seconds that a mutant's tests get


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
    constant: bool = False

    @property
    def name(self) -> str:
        """The same for the same mutation of the same text, wherever its line moves."""
        return f"{self.module}: {self.operator}: {self.before} → {self.after}"


def modules() -> list[str]:
    """Every module of the package that has statements."""
    package = raw.ROOT / PACKAGE
    files = (p.relative_to(package) for p in package.rglob("*.py") if p.stat().st_size)
    return sorted(f.with_suffix("").as_posix() for f in files if f.parts[0] != "roofs_suite")


def tests_of(module: str) -> list[str]:
    """The module's tests: the file of its name and those of TESTS, else those of its folder; then the contract."""
    tests = raw.ROOT / "tests"
    folder, name = (tests / module).parent, Path(module).name
    files = [*folder.glob(f"test_{name}.py"), *(tests / t for t in TESTS.get(module, ()))]
    while not files:
        first = f"test_{folder.name}.py"
        files = [*folder.parent.glob(first), *sorted(folder.glob("test_*.py"), key=lambda f: (f.name != first, f))]
        folder = folder.parent
    return [f.relative_to(raw.ROOT).as_posix() for f in (*files, *sorted((tests / "contract").glob("test_*.py")))]


def places(source: str) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    """(line, column) → what can be done there: operator, occurrence in the module, line."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    passive = _passive(source)
    tests_of: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for name in sorted(operator_names()):
        if name.endswith(("VariableReplacer", "VariableInserter", "RemoveDecorator")):
            continue
        operator = get_operator(name)()
        count = 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if not any(a <= (line, column) <= b for a, b in passive):
                    tests_of.setdefault((line, column), []).append((name, count, line))
                count += 1
    return tests_of


def _passive(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Extents of annotations, decorators and aliases of types."""
    expressions: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            expressions += node.decorator_list
        if isinstance(node, ast.FunctionDef):
            expressions.append(node.returns)
        if isinstance(node, ast.AnnAssign | ast.arg):
            expressions.append(node.annotation)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            expressions.append(node.test)
    for value in _module_level(source):
        nodes = list(ast.walk(value))
        if any(isinstance(n, ast.BitOr) for n in nodes) and not any(isinstance(n, ast.Call) for n in nodes):
            expressions.append(value)
    return [_extent(n) for n in expressions if n is not None]


def constants(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Extents of the numbers assigned to names of a module: literals, names and arithmetic alone."""
    parts = (ast.Constant, ast.Name, ast.expr_context, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop)
    return [
        _extent(value)
        for value in _module_level(source)
        if all(isinstance(n, parts) for n in ast.walk(value))
        and any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(value))
    ]


def _module_level(source: str) -> Iterator[ast.expr]:
    """The values assigned at the top of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            several = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            yield from node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value]


def _extent(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    """(line, column) where an expression begins and ends."""
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def drawn(sources: Mapping[str, str], sample: int, seed: int) -> list[Mutant]:
    """As many mutants that compile, at places drawn at random over all modules."""
    chance = random.Random(seed)
    everywhere = [(m, where, ways) for m, text in sources.items() for where, ways in sorted(places(text).items())]
    chance.shuffle(everywhere)
    mutants: list[Mutant] = []
    for module, where, ways in everywhere:
        if len(mutants) == sample:
            break
        mutant = _mutant(module, sources[module], *chance.choice(ways))
        if mutant and _compiles(mutant.text):
            constant = any(a <= where <= b for a, b in constants(sources[module]))
            mutants.append(replace(mutant, constant=constant))
    return mutants


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _mutant(module: str, source: str, operator: str, occurrence: int, line: int) -> Mutant | None:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    try:
        text = mutate_code(source, get_operator(operator)(), occurrence)
    except AttributeError:  # Cosmic Ray counts `except module.Error` as a place, and cannot write it
        return None
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
                if mutant and mutant.name == _key(row):
                    return replace(mutant, constant=bool(row.get("constant")))
    return None


#: Mutants of code that ends processes must not reach any outside: the worker sees only its own, whose init reaps them.
ISOLATED = ("unshare", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", '"$@"; exit $?', "sh")  # fmt: skip


class Worker:
    """A process that tests mutants in its own copy of the sources, with no other process in sight."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._start()

    def _start(self) -> None:
        script = Path(__file__).with_name("mutation_worker.py")
        command = [*ISOLATED, sys.executable, "-P", str(script), str(self._copy)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, tests: Sequence[str], limit: float, module: str = "errors", text: str = "") -> dict[str, Any]:
        """Runs the tests; a mutant that ends the worker itself fails them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        file = f"{PACKAGE}/{module}.py"
        builds = not module.startswith(_BUILDING)
        question = {"file": file, "text": text or None, "tests": tests, "limit": limit, "builds": builds}
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if line:
            return dict(json.loads(line))
        if not text:
            raise SystemExit(f"expected the worker to run {tests}, found that it ended")
        self.close()
        shutil.copyfile(raw.ROOT / file, self._copy / file)
        self._start()
        return {"outcome": "failed", "seconds": 0.0, "said": "the worker ended"}

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
    return raw.main(
        __file__, __doc__, arguments, measure, table, argv, lambda results: 0 if share(results) >= GOAL else 1
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="how many mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="at once (default: 2)")
    parser.add_argument("--only", nargs="+", choices=modules(), metavar="MODULE")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no mutant later: the first of a draw are one")
    parser.add_argument("--again", metavar="FILE", help="draw nothing: try those again that survived in FILE")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Draws the mutants and tests each."""
    if importlib.util.find_spec("cosmic_ray") is None:
        raise SystemExit("bench-mutation needs cosmic-ray: pip install -e '.[mutation]'")
    machine = raw.machine()
    sources = {m: (raw.ROOT / PACKAGE / f"{m}.py").read_text(encoding="utf-8") for m in options.only or modules()}
    rows: list[dict[str, Any] | Mutant] = []
    if not options.again:
        rows += drawn(sources, options.sample, options.seed)
    for row in raw.read(Path(options.again), "mutation")["mutants"] if options.again else ():
        # Tests that are added revive nothing, and kill nothing that is the same as the original.
        open_still = row["outcome"] == "survived" and row["module"] in sources and not _equivalent(row)
        rows.append(
            found_again(row, sources.get(row["module"], "")) or row | {"outcome": "gone"} if open_still else row
        )
    end = time.monotonic() + 60 * (options.minutes or 1e9)
    with tempfile.TemporaryDirectory(prefix="flashcore-mutation-") as name:
        session = Session([Worker(copy_of(raw.ROOT, Path(name) / str(i))) for i in range(options.workers)], end)
        with concurrent.futures.ThreadPoolExecutor(options.workers) as threads:
            tried = list(threads.map(lambda m: m if isinstance(m, dict) else session.tried(m), rows))
        session.close()
    if options.again:
        tried = [r if m is r or r is None else r | {"drawn": "survived"} for m, r in zip(rows, tried, strict=True)]
    return {"machine": machine, "mutants": [r for r in tried if r]}


class Session:
    """Workers that test mutants until an end."""

    def __init__(self, workers: Sequence[Worker], end: float) -> None:
        self._end = end
        self._workers = workers
        self._pool: queue.Queue[Worker] = queue.Queue()
        self._sound: dict[tuple[str, ...], bool] = {}
        for worker in workers:
            self._pool.put(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def tried(self, mutant: Mutant) -> dict[str, Any] | None:
        """The mutant's row; None after the end."""
        worker = self._pool.get()
        try:
            if time.monotonic() > self._end:
                return None
            tests = tests_of(mutant.module)
            result = worker.ask(tests, _LIMIT, mutant.module, mutant.text)
            outcome = "survived"
            if result["outcome"] != "passed":
                failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result["said"], re.MULTILINE)
                sound = self._passes(worker, tuple(failed or tests)) or self._passes(worker, tuple(tests))
                outcome = "killed" if sound else "void"
        finally:
            self._pool.put(worker)
        row = {"module": mutant.module, "line": mutant.line, "operator": mutant.operator, "before": mutant.before,
               "after": mutant.after, "outcome": outcome, "seconds": result["seconds"]}  # fmt: skip
        row |= {"constant": True} if mutant.constant else {}
        row |= {"timeout": True} if result["outcome"] == "timeout" else {}
        line = f"{outcome:8} {mutant.module}:{mutant.line} {mutant.before} → {mutant.after}"
        print(line, file=sys.stderr, flush=True)
        return row

    def _passes(self, worker: Worker, tests: tuple[str, ...]) -> bool:
        """True if these tests pass without a mutant; a failing test detects none."""
        if tests not in self._sound:
            self._sound[tests] = worker.ask(tests, _LIMIT / 2)["outcome"] == "passed"
        return self._sound[tests]


@functools.cache
def reasons() -> dict[str, str]:
    """Survivor → why no test can notice it, as somebody wrote it."""
    return dict(json.loads(WHY.read_text(encoding="utf-8"))) if WHY.is_file() else {}


def _key(row: Mapping[str, Any]) -> str:
    """As :attr:`Mutant.name`."""
    return f"{row['module']}: {row['operator']}: {row['before']} → {row['after']}"


def why(row: Mapping[str, Any]) -> str:
    """The explanation of a survivor; empty if there is none."""
    return reasons().get(_key(row), "")


def _equivalent(row: Mapping[str, Any]) -> bool:
    return why(row).startswith("equivalent")


def share(results: raw.Results) -> float:
    """Share of the mutants killed, without constants and equivalent mutants."""
    killed, total = _counts(results)
    return float(killed / max(1, total))


def _counts(results: raw.Results) -> tuple[int, int]:
    """Mutants killed, and all that tests could kill."""
    rows = [r for r in results["mutants"] if not r.get("constant")]
    killed = sum(r["outcome"] == "killed" for r in rows)
    return killed, killed + sum(r["outcome"] == "survived" and not _equivalent(r) for r in rows)


def table(results: raw.Results) -> list[str]:
    """The results as lines of text: each module, then each survivor."""
    return list(_table(results))


def _table(results: raw.Results) -> Iterator[str]:
    rows = results["mutants"]
    yield results["machine"]
    by_module = Counter(r["module"] for r in rows)
    for module in sorted(by_module):
        killed = sum(r["outcome"] == "killed" for r in rows if r["module"] == module)
        yield f"{module:28} {killed:4} of {by_module[module]:4} killed"
    numbers = [r for r in rows if r.get("constant")]
    rows = [r for r in rows if not r.get("constant")]
    left = [r for r in rows if r["outcome"] == "survived"]
    killed, gone, void = (sum(r["outcome"] == o for r in rows) for o in ("killed", "gone", "void"))
    equal, since = sum(map(_equivalent, left)), sum(r["outcome"] == "killed" and "drawn" in r for r in rows)
    low, high = interval(*_counts(results))
    yield (
        f"{killed} of {len(rows)} killed{f', {since} of them by tests written since the draw' if since else ''}, "
        f"{equal} equivalent{f', {gone} of lines that are gone' if gone else ''}"
        f"{f', {void} whose tests fail without a mutant' if void else ''}: "
        f"{100 * share(results):.1f} % of the others (95 % interval {100 * low:.0f} to {100 * high:.0f}); "
        f"goal {100 * GOAL:.0f} %"
    )
    if numbers:
        yield f"constants: {sum(r['outcome'] == 'killed' for r in numbers)} of {len(numbers)} killed"
    for r in left:
        yield f"{r['module']}:{r['line']}  {r['before']}  →  {r['after']}: {why(r) or 'nobody has looked at it'}"


def interval(killed: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96
    middle = killed + z * z / 2
    half = z * (killed * (total - killed) / max(1, total) + z * z / 4) ** 0.5
    return (middle - half) / (total + z * z), (middle + half) / (total + z * z)


if __name__ == "__main__":
    sys.exit(main())
