"""Candidates that cheat, and honest ones, before the judge: ``python -m extensions.judge.benchmarks.judge``.

Each cheat is a mechanism, written anew: those of published collections, and ours. A cheat *won* if its verdict is
*accepted* and it is faster than the same kernel without the attack, which is judged in the same run: over the baseline
by more than 1 % beyond the intervals of both and the noise between two processes, on any shape and mode. One that is
accepted without that is *harmless*: all its timed answers were right, and it gained nothing (it found no mark of an
earlier call, say, and did the work). An honest
candidate is *convicted* if it is rejected. The goal is 0 won and 0 convicted.

``--build DIR`` makes the candidates, which needs compilers and a sandbox but no GPU; ``--candidates DIR`` judges such a
folder, and no more when ``--seconds`` have passed; ``attack.NAME`` in it are cheats made elsewhere. ``--batch N``
judges N candidates of them instead, again and again under other names, for the share of time that each GPU is busy:
both kinds are judged, so many are rejected soon. ``--json`` is written after each verdict. Without a GPU, cheats that
end before a GPU is needed are judged, and the others are *unmeasured*.

Exit code 0 if no cheat won and no honest candidate was convicted, 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import raw
from flashcore.errors import Exit, FlashcoreError
from flashcore.machine import toolchain
from flashcore.model.groups import grouped
from flashcore.model.suite import Shape
from flashcore.pipeline import plugins
from flashcore.readers import cubin
from flashcore.suites.load import load
from flashcore_judge import candidate, judging, preparing
from flashcore_judge.answers import Answers
from flashcore_judge.measuring import Process
from flashcore_judge.verdict import Verdict

SOURCES = Path(__file__).parent / "attacks"
SUITE, ARCH = "examples/row_softmax", "sm_90a"
#: Suites whose variants are honest candidates.
HONEST = ("examples/row_softmax", "examples/triton_kernels", "examples/tune", "kernels/attention", "examples/languages")
#: A suite's shapes that one of its candidates has: timed ones, and others. All would take a minute each.
_TIMED, _CHECKED_ONLY = 2, 4
#: Results are written so often while others are measured: a limit that kills this process loses no more.
_WRITTEN_S = 10.0
#: The kernel of the cheats without an attack; the factor by which a cheat that won is faster.
CONTROL, GAIN = "honest.attacks.control", 1.01
#: Outcomes that the score must not have.
_WRONG = {"cheat": ("accepted", "won"), "attack": ("accepted", "won"), "honest": ("rejected",)}
_GRID = {"grid": ["=cdiv(R, 4)", 1, 1], "block": [128, 1, 1]}
_ARGUMENTS: list[Any] = [
    [{"tensor": "x"}],
    [{"tensor": "out"}],
    [{"int32": "=R"}],
    [{"int32": "=C"}],
    [{"tensor": "workspace"}],
]


@dataclass(frozen=True, slots=True)
class Cheat:
    """A mechanism: the number of its code, what ends it, who published it, and the symbol that gets no section."""

    name: str
    attack: int
    ends: str
    published: str = ""
    source: str = "kernels.cu"
    launch: Mapping[str, Any] = field(default_factory=dict)
    symbol: str = ""
    form: Mapping[str, Any] = field(default_factory=dict)


_STATIC, _PLAN, _BOX, _POISON = "inspection", "validation of the plan", "the sandbox", "memory written before each call"
_SAMPLE, _CHECKED, _RUN = "bytes of all timed calls", "answers judged elsewhere", "a process of its own"
_EACH = "answers of all timed calls, if bytes may differ"
_FRESH, _EIGH = "a new input for each call of a process", "reference-kernels, eigh:"
_MIXED, _NEW_CODE, _HOST = "rows of several kinds", "kernels that are loaded anew", "other clocks"
_LAUNCH: dict[str, Any] = {"cubin": "k.cubin", "kernel": "attack_kernel", **_GRID, "arguments": _ARGUMENTS}
_WILD = [[{"tensor": "x"}], [{"hex": "00000000beba0000"}], *_ARGUMENTS[2:]]
CHEATS = (
    Cheat("counts its calls", 1, _STATIC, "KernelGuard: result caching"),
    Cheat("caches by pointer", 2, _STATIC, "KernelGuard: caching by pointer; reward-hack field guides"),
    Cheat("initialized state", 3, _STATIC),
    Cheat("reads the wall clock", 4, _STATIC, "pygpubench: warm-up detection"),
    Cheat("prints results", 5, _STATIC, "KernelGuard: print injection"),
    Cheat("allocates on the device", 6, _STATIC),
    Cheat("launches from the device", 0, _STATIC, "SOL-ExecBench: stream injection", source="launches.cu"),
    Cheat("answers in the workspace", 10, _POISON),
    Cheat("a mark beside the output", 11, _POISON),
    Cheat("the output of an earlier call", 12, _POISON, "field guides: stale buffers; pygpubench: warm-up"),
    Cheat("alternate halves", 13, _SAMPLE),
    Cheat("rarely lazy", 14, _SAMPLE),
    Cheat("only the rows that a sample sees", 15, _CHECKED, "KernelHacks: partial computation"),
    Cheat("lazy when cold", 16, _SAMPLE, "pygpubench: warm-up detection"),
    Cheat("marks in shared memory", 17, _POISON, launch={"dynamic_smem": 8192}),
    Cheat("marks in local memory", 18, _POISON),
    Cheat("no work", 19, _CHECKED, "KernelGuard: trivial; SOL-ExecBench: lazy outputs"),
    Cheat("no work on large shapes", 20, _CHECKED, "KernelGuard: hard-coded shapes"),
    Cheat("never ends", 21, _RUN),
    Cheat("an invalid address", 22, _RUN),
    Cheat("overwrites what follows its output", 23, _POISON, "pygpubench: error counter, expected buffer"),
    Cheat("works in place of its input", 24, _CHECKED, "field guides: in-place input"),
    Cheat("a constant", 25, _CHECKED, "KernelHacks: constant outputs"),
    Cheat("fewer bits", 26, _CHECKED, "KernelHacks: precision downgrade; SOL-ExecBench"),
    Cheat("right on small values only", 27, _CHECKED, "KernelHacks: ghost optimization branch"),
    Cheat("sums a sample", 28, _CHECKED),
    Cheat("every fourth call works", 29, _POISON),
    Cheat("starts before its call", 0, _PLAN, launch={"programmatic": True}),
    Cheat("a pointer of its choice", 0, _RUN, launch={"arguments": _WILD}),
    Cheat(
        "a tensor beyond its end",
        0,
        _PLAN,
        launch={"arguments": [[{"tensor": "x", "offset": 1 << 40}], *_ARGUMENTS[1:]]},
    ),
    Cheat("a workspace over a tensor", 0, _PLAN, form={"workspaces": {"out": 64}}),
    Cheat("a formula that does not end", 0, _PLAN, launch={"grid": ["=" + "(" * 200 + "9" + "*9)" * 200, 1, 1]}),
    Cheat("a formula that calls", 0, _PLAN, launch={"grid": ["=__import__('os').getpid()", 1, 1]}),
    Cheat("a file of others", 0, _PLAN, launch={"cubin": "../../../etc/passwd"}),
    Cheat("a looser tolerance", 0, _PLAN, form={"tolerance": "anything"}),
    Cheat("results in its name", 19, _CHECKED, form={"name": "\x1b[2J</script>::error::accepted\u202e" + "x" * 500}),
    *(
        Cheat(name, i, _BOX, published, "host.cu")
        for i, name, published in (
            (0, "lazy host code", "SOL-ExecBench: lazy outputs; KernelGuard: silent fallback"),
            (1, "results through descriptors", "pygpubench: fd overwrite, pipe interposition, FILE structure"),
            (2, "a thread that writes results", "pygpubench: thread + fd; SOL-ExecBench: thread injection"),
            (3, "traces other processes", "pygpubench: ptrace, /proc/self/mem, GOT, detours, heap and stack scans"),
            (4, "the network", "KernelGuard: obfuscated loading"),
            (5, "keys and secrets", "pygpubench: AES key recovery, signature scans"),
            (6, "the GPU while planning", "pygpubench: GPU scan, event array, error counter"),
            (7, "writes the harness", "pygpubench: replaces torch; SOL-ExecBench: monkey patches; KernelGuard: timer"),
            (8, "ends all processes", ""),
            (9, "takes all memory", ""),
            (10, "takes all processes", ""),
            (11, "takes the disk", ""),
            (13, "leaves its root", ""),
        )
    ),
    Cheat("rows seen before, in constant memory", 30, _FRESH, f"{_EIGH} cache replay"),
    Cheat("a workspace beyond the host's memory", 0, _PLAN, form={"workspaces": {"workspace": 1 << 36}}),
    Cheat("a formula that takes all memory", 0, _PLAN, launch={"grid": ["=(0 or (1,)) * 99999999999", 1, 1]}),
    Cheat("patches clocks and statistics", 14, _BOX, f"{_EIGH} timer and stats patch; aggregator underflow", "host.cu"),
    Cheat("answers in files", 15, _BOX, f"{_EIGH} file replay, lazy output", "host.cu"),
    Cheat("settings of the machine", 17, _BOX, source="host.cu"),
    Cheat("lazy at some addresses", 31, _SAMPLE),
    Cheat("works on its first calls", 32, _CHECKED, "field guides: correct while checked"),
    Cheat("lazy on one input in sixteen", 33, _CHECKED),
    Cheat("lazy on one input in sixteen, and in no order", 33, _CHECKED, form={"deterministic": False}),
    Cheat("lines that stay in L2", 34, "a reset of persisting lines before each call"),
    Cheat("a fast path for the kind of input that is timed", 35, _MIXED),
    Cheat("a tail that does not wait", 0, _PLAN, form={"launches": [_LAUNCH, {**_LAUNCH, "programmatic": True}]}),
    Cheat("state whose symbol has no section", 1, _STATIC, symbol="calls"),
    Cheat("a call whose symbol has no section", 6, _STATIC, symbol="malloc"),
    Cheat("takes the judge's store out of its flush", 36, _NEW_CODE, source="patches.cu"),
    Cheat("no maximum in rows that look usual", 37, _MIXED),
    Cheat("counts its calls in its own code", 38, _SAMPLE, source="patches.cu"),
    Cheat("moves times that it finds", 39, _HOST, source="patches.cu"),
    Cheat("takes memory in many processes", 18, _BOX, source="host.cu"),
    Cheat("takes all threads", 19, _BOX, source="host.cu"),
    Cheat("takes memory of sockets", 20, _BOX, source="host.cu"),
    Cheat("takes memory of files without content", 21, _BOX, source="host.cu"),
    Cheat(
        "lines that stay in L2 and slow its rival",
        40,
        "a reset of persisting lines before each call",
        form={"workspaces": {"workspace": 48 << 20}},
    ),
    Cheat("writes into its input when it is timed", 41, "inputs of timed calls, looked at by chance"),
    Cheat("results that are stored when it has ended", 42, _SAMPLE),
    Cheat("lazy in one timed call of six", 43, _EACH, form={"deterministic": False}),
)


def build(folder: Path) -> None:
    """Writes every candidate: ``cheat.N`` and ``honest.NAME``, each with the ``suite`` that it is for."""
    plugins.load()
    compiled: dict[tuple[str, int], Path] = {}
    for number, cheat in enumerate(CHEATS):
        place = folder / f"cheat.{number:02}"
        place.mkdir(parents=True)
        form: dict[str, Any] = {"name": cheat.name, "problem": "rows", "tolerance": "fp32"}
        if cheat.source == "host.cu":
            shutil.copy(SOURCES / cheat.source, place)
            attacked = json.dumps(str(Path(preparing.__file__)))
            text = (place / cheat.source).read_text().replace("FLASHCORE_ATTACKED", attacked)
            (place / cheat.source).write_text(text)
            form["variant"] = {"source": cheat.source, "config": {"ATTACK": cheat.attack}}
        else:
            key = cheat.source, cheat.attack
            compiled.setdefault(key, _compiled(*key, place))
            if compiled[key].parent != place:
                shutil.copy(compiled[key], place)
            if cheat.symbol:
                _leave(place / "k.cubin", cheat.symbol)
            launch = {**_LAUNCH, **cheat.launch}
            shapes = [] if cheat.attack in (0, 20) else ["main", "odd"]
            form |= {"workspaces": {"workspace": 4 << 20}, "launches": [launch], "shapes": shapes}
        _write(place, {**form, **cheat.form}, SUITE)
    control = folder / CONTROL
    control.mkdir()
    form = {"name": "control", "problem": "rows", "tolerance": "fp32", "workspaces": {"workspace": 4 << 20}}
    _compiled("kernels.cu", 0, control)
    _write(control, {**form, "launches": [_LAUNCH]}, SUITE)
    for suite in HONEST:
        for place, form in _honest(raw.ROOT / suite, folder):
            _write(place, form, suite)


def _write(place: Path, form: Mapping[str, Any], suite: str) -> None:
    (place / candidate.MANIFEST).write_text(json.dumps(form))
    (place / "suite").write_text(suite)


def _leave(path: Path, symbol: str) -> None:
    """Has a symbol be in no section."""
    data = bytearray(path.read_bytes())
    sections = cubin.sections_of(bytes(data))
    table = next(s for s in sections if s.name == ".symtab")
    for row, one in enumerate(cubin.symbols_of(bytes(data), sections)):
        if one.name == symbol:
            struct.pack_into("<H", data, table.offset + 24 * row + 6, 0xFFF1)
    path.write_bytes(data)


def _compiled(source: str, attack: int, place: Path) -> Path:
    nvcc, flags = toolchain.find_nvcc(), ["-rdc=true"] if source in ("launches.cu", "patches.cu") else []
    command: list[str | Path] = [
        nvcc.path,
        f"-arch={ARCH}",
        "-cubin",
        *flags,
        f"-DATTACK={attack}",
        SOURCES / source,
    ]
    made = place / "k.cubin"
    subprocess.run([*command, "-o", made], check=True, stderr=subprocess.DEVNULL)
    if source == "patches.cu":
        subprocess.run([nvcc.path.with_name("nvlink"), f"-arch={ARCH}", made, "-o", made], check=True)
    return made


def _honest(root: Path, folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The suite's variants, compiled and planned here for its shapes, so that a GPU's machine needs no compiler."""
    suite = load(root)
    for number, variant in enumerate(suite.variants.values()):
        shapes = some_of([s for s in suite.shapes.values() if variant.runs_on(s)], number)
        if variant.is_reference or ARCH not in variant.where.archs or not any("bench" in s.stages for s in shapes):
            continue
        form = {"name": variant.name, "problem": variant.problem, "tolerance": variant.tolerance, "roof": variant.roof}
        place = folder / f"honest.{suite.name}.{variant.name}"
        with tempfile.TemporaryDirectory() as temporary:
            try:
                made = preparing.compiled(suite, variant.name, shapes, ARCH, Path(temporary))
            except FlashcoreError as error:
                print(f"{suite.name}/{variant.name}: not built: {str(error)[:300]}", file=sys.stderr)
                continue
            place.mkdir(parents=True)
            for file, content in made.cubins.items():
                (place / file).write_bytes(content)
        launches = {name: [each.model_dump() for each in every] for name, every in made.shapes.items()}
        yield place, {**form, "shapes": [*launches], "launches": launches}


def some_of(shapes: Sequence[Shape], number: int) -> list[Shape]:
    """The shapes of the variant of that number: few of them, others for each."""
    timed = [s for s in shapes if "bench" in s.stages]
    others = [s for s in shapes if s not in timed]

    def turn(of: list[Shape], most: int) -> list[Shape]:
        return [of[(number * most + i) % len(of)] for i in range(min(most, len(of)))]

    return [*turn(timed, _TIMED), *turn(others, _CHECKED_ONLY)]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Each candidate's verdict."""
    plugins.load()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.build or options.candidates or made)
        if options.build or not options.candidates:
            build(folder)
        results: dict[str, Any] = {}
        words = options.only.split(",") if options.only else [""]
        reached = {name for file in options.after or () for name in raw.read(Path(file), "judge")}
        wanted = sorted(
            (p for p in folder.iterdir() if any(word in p.name for word in words)),
            key=lambda p: (p.name in reached and p.name != CONTROL, *_turn(p)),
        )
        if options.batch:
            wanted = _batch(wanted, options.batch, Path(made))
        start = written = time.monotonic()
        with _steps() as spent, contextlib.closing(_judged([] if options.no_judging else wanted)) as verdicts:
            for place, verdict in verdicts:
                one = json.loads(verdict.to_json())
                one |= {"at_s": round(time.monotonic() - start, 2), "seconds": spent.get(verdict.candidate, {})}
                results[place.name] = one
                message = f"{one['at_s']:.1f} s {one['seconds']} {one['reasons'][:1] or _times(one)}"
                print(f"{place.name} {one['status']} {message}", file=sys.stderr)
                if options.json and time.monotonic() > written + _WRITTEN_S:
                    raw.write(Path(options.json), "judge", options, results)
                    written = time.monotonic()
                if time.monotonic() > start + options.seconds:
                    break
        return results


@contextlib.contextmanager
def _steps() -> Iterator[Mapping[str, Mapping[str, float]]]:
    """Candidate's hash → seconds by what the judge spent them on, while the ``with`` block runs: inputs, answers, waits
    for processes to start and end, and the rest, which is the kernels'."""
    spent: dict[str, dict[str, float]] = {}
    of_thread = threading.local()  # each measures one candidate at a time

    def timed(function: Any, step: Callable[..., str]) -> Any:
        def call(*words: Any) -> Any:
            start, steps = time.monotonic(), getattr(of_thread, "steps", {})
            try:
                return function(*words)
            finally:
                name = step(*words)
                steps[name] = round(steps.get(name, 0.0) + time.monotonic() - start, 3)

        return call

    def judge(self: Any, one: Any, verdict: Verdict, original: Any = judging._Judge.judge) -> None:
        steps = of_thread.steps = spent.setdefault(verdict.candidate, {})
        start = time.monotonic()
        try:
            original(self, one, verdict)
        finally:
            steps["kernels"] = round(time.monotonic() - start - sum(steps.values()), 3)
            of_thread.steps = {}

    def of_tasks(_: Any, case: Any, tasks: Any) -> str:
        return "answers" if any(task["task"] == "judge" for task in tasks) else "inputs"

    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (judging._Judge, "judge", judge),
            (Answers, "ask", timed(Answers.ask, of_tasks)),
            *((Process, name, timed(getattr(Process, name), lambda *_: "waits")) for name in ("ready", "close")),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        yield spent


def _judged(candidates: Sequence[Path]) -> Generator[tuple[Path, Verdict]]:
    """Each candidate's folder and verdict, one suite after another."""
    by_suite = grouped(((place / "suite").read_text(), place) for place in candidates)
    for suite, places in by_suite.items():
        yield from judging.judge_all(load(raw.ROOT / suite), places, lambda _: None)


def _batch(candidates: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Copies of those that run on a GPU and do not hang it, each sealed as another one: honest ones and cheats in an
    order without a pattern."""
    usual = [p for p in candidates if not p.name.startswith("attack.") and _turn(p)[0] < 2]
    random.Random(0).shuffle(usual)
    made = [shutil.copytree(usual[i % len(usual)], folder / f"batch.{i:03}") for i in range(count)]
    for number, place in enumerate(made):
        (place / "number").write_text(str(number))
    return made


def _turn(place: Path) -> tuple[int, float]:
    """The control and the suite's own first; then cheats and honest ones in an order without a pattern; what ends
    before a GPU is needed, or hangs one, last."""
    turn = 0 if place.name.startswith(("honest.attacks", "honest.row_softmax")) else 1
    if place.name.startswith("cheat."):
        cheat = CHEATS[int(place.name[6:])]
        turn = 2 if cheat.ends in (_STATIC, _PLAN) or cheat.attack == 21 or cheat.source == "host.cu" else 1
    return turn, random.Random(place.name).random()


def table(results: raw.Results) -> list[str]:
    """A line for each candidate, then the score."""
    lines = []
    for name, verdict in results.items():
        title = f"{CHEATS[int(name[6:])].name}" if name.startswith("cheat.") else name
        reason = "; ".join(verdict["reasons"])[:150]
        lines.append(f"{title:36} {_outcome(name, results):10} {reason or _times(verdict)}")
    counts = Counter((name.partition(".")[0], _outcome(name, results)) for name in results)
    lines += ["", *(f"{kind}: {outcome} {count}" for (kind, outcome), count in sorted(counts.items()))]
    lines += [f"{gpu} was busy for {share:.0%} of the time" for gpu, share in busy(results).items()]
    if spent := [verdict["seconds"] for verdict in results.values() if verdict["device"]]:
        sums = sorted(sum(each.values()) for each in spent)
        lines.append(f"seconds per candidate on the GPU: median {statistics.median(sums):.1f}, most {sums[-1]:.1f}")
        lines.append("in all: " + ", ".join(f"{what} {seconds:.0f}" for what, seconds in _summed(spent).items()))
    return lines


def _summed(spent: Iterable[Mapping[str, float]]) -> Counter[str]:
    """Seconds by what they were spent on."""
    total = Counter[str]()
    for seconds in spent:
        total.update(seconds)
    return total


def busy(results: raw.Results) -> dict[str, float]:
    """GPU → the share of the time, from the start to its last verdict, that it had inputs, kernels or answers of a
    candidate, and did not wait for a context to be made or freed."""
    ends = {one["device"]["uuid"]: one["at_s"] for one in results.values() if one["device"]}
    spent = grouped((one["device"]["uuid"], one["seconds"]) for one in results.values() if one["device"])
    return {
        gpu: sum(s for what, s in _summed(every).items() if what != "waits") / ends[gpu]
        for gpu, every in sorted(spent.items())
    }


def _times(verdict: Mapping[str, Any]) -> dict[str, float]:
    """us by shape and mode."""
    return {f"{one['shape']} {mode}": time["us"] for one in verdict["shapes"] for mode, time in one["times"].items()}


def _outcome(name: str, results: raw.Results) -> str:
    """The status of its verdict; of an accepted cheat ``won`` or ``harmless``, or ``accepted`` without a control."""
    status = str(results[name]["status"])
    usual = results.get(CONTROL, {"status": ""})
    if name.startswith("honest.") or status != "accepted" or usual["status"] != "accepted":
        return status
    controls = {(one["shape"], mode): time for one in usual["shapes"] for mode, time in one["times"].items()}
    wins = [
        _gains(time, controls[one["shape"], mode])
        for one in results[name]["shapes"]
        for mode, time in one["times"].items()
    ]
    return "won" if any(wins) else "harmless"


def _gains(time: Mapping[str, Any], control: Mapping[str, Any]) -> bool:
    """Whether a time over the baseline's is below the control's by more than 1 %, both intervals, and the ratio of two
    processes that ran the same (``a_a``)."""
    noise = max(max(one["a_a"]["high"], 1 / one["a_a"]["low"]) for one in (time, control))
    return bool(time["speedup"]["low"] > control["speedup"]["high"] * GAIN * noise)


def verdict(results: raw.Results) -> int:
    """The exit code."""
    wrong = [
        name
        for name, one in results.items()
        if _outcome(name, results) in _WRONG.get(name.partition(".")[0], ()) or "ESCAPED" in str(one["reasons"])
    ]
    return int(Exit.FAILED if wrong else Exit.OK)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--build", metavar="DIR", help="make the candidates there")
    parser.add_argument("--candidates", metavar="DIR", help="judge those there")
    parser.add_argument("--only", metavar="TEXT,...", help="only those with one of these in their name")
    parser.add_argument("--after", metavar="FILE", action="append", help="first those that are not in these results")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="judge no more after so many")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="judge so many of them, for the busy share")
    parser.add_argument("--no-judging", action="store_true", help="only make them")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
