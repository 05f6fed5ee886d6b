"""From a save to the four answers of ``flashcore watch``, and whether they are those of ``flashcore profile``.

    python -m benchmarks.watch [--suite DIR] [--variant NAME] [--shape NAME]... [--edits N] [--compared N]

The suite is copied to a temporary folder. Each edit changes the machine code of one kernel; a save is answered to the
end, and the next follows six seconds later. Of the compared edits five are wrong, two hang, two do not compile; when
watch has ended, one ``flashcore profile`` measures them as variants of the suite. The memory of every process is read
after each save; the last saves follow as soon as a build is timed, which cancels its profile. Without a GPU only
budgets and advice are answered.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import tomlkit

from benchmarks import raw
from flashcore.errors import UsageError
from flashcore.machine import python_process
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.records import lookup, store
from flashcore.suites import load

#: Seconds after a save, on one H200 with 16 cores: of one shape, and of eight.
TARGETS = {"budgets": 2.5, "right": 3.5, "faster": 3.5, "limits": 4.0}
ALL_SHAPES = 10.0
#: Without a GPU, on two cores.
WITHOUT_GPU = 4.0
_QUESTIONS = ("budgets", "right", "faster", "limits")
#: Seconds from the last answer to the next save: processes that the next answers need start in them.
PAUSE = 6.0
_TIME_LIMIT = 180.0
#: Edits of the kernel's source, and what they plant: a line is replaced, another text appended.
_EDIT = "edit_"
_LINE = "  const float f = fast_reciprocal(l);"
_PLANTED = (
    ("wrong", "  const float f = 1.01f * fast_reciprocal(l);"),
    ("wrong", "  const float f = row == 5 ? 0.0f : fast_reciprocal(l);"),
    ("wrong", "  const float f = -fast_reciprocal(l);"),
    ("wrong", "  const float f = col == 8 ? 2.0f * fast_reciprocal(l) : fast_reciprocal(l);"),
    ("wrong", "  const float f = fast_reciprocal(l - l);"),
    ("slower", "  float f = fast_reciprocal(l);\n  for (volatile int i = 0; i < 40; ++i) f += 0.0f;"),
    ("hangs", "  const float f = fast_reciprocal(l);\n  while (clock64() != 0) {\n  }"),
    ("hangs", "  const float f = fast_reciprocal(l);\n  if (row == 3)\n    for (;;) __nanosleep(1000);"),
    ("does not compile", "  const float f = fast_reciprocal(l)"),
    ("does not compile", "  const float f = fast_reciprocal(length_of_row);"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a target was missed or an answer differs."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: int(not all(_verdicts(f).values())))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--variant", default="tma_split_keys", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--shape", action="append", metavar="NAME", help="of the first part (default: mission)")
    parser.add_argument("--edits", type=int, default=10, metavar="N", help="saves in each part (default: %(default)s)")
    parser.add_argument("--compared", type=int, default=20, metavar="N", help="edits that profile repeats")
    parser.add_argument("--saves", type=int, default=50, metavar="N", help="saves before memory is compared")


class Watched:
    """A running ``flashcore watch``."""

    def __init__(self, folder: Path, variant: str, shapes: Sequence[str]) -> None:
        words = ["watch", "--suite", "suite", "--variant", variant, "--format", "jsonl"]
        words += [word for shape in shapes for word in ("--shape", shape)]
        self.process = subprocess.Popen(
            python_process.command("flashcore", *words), cwd=folder, env=python_process.environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(folder / "watch.log").open("ab"), text=True,
        )  # fmt: skip
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._saves = 0
        self.steps: list[tuple[float, str]] = []  # what was done since the last save, and when (monotonic)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def answered(self, last: str = "idle") -> Iterator[dict[str, Any]]:
        """The answers to the next save, until ``idle``, the next save is waited for, or to the ``last`` question."""
        until, before = time.monotonic() + _TIME_LIMIT, self._saves
        self.steps.clear()
        while True:
            event = self._events.get(timeout=max(0.1, until - time.monotonic()))
            what = event["event"]
            if what == "save":
                self._saves = event["save"]
            if self._saves == before:
                continue  # of the save before
            self.steps.append((time.monotonic(), event.get("what") or event.get("question") or what))
            if what in ("answer", "error"):
                yield event
            if what in ("idle", "error") or event.get("question") == last:
                return

    def memory(self) -> dict[str, float]:
        """MiB that each process of it has resident, by its command."""
        sizes: dict[str, float] = {}
        group = os.getpgid(self.process.pid)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parents = _ancestors(int(entry.name))
                if self.process.pid in parents or (entry.name == str(self.process.pid) and group):
                    name = (entry / "cmdline").read_bytes().split(b"\0")
                    words = [Path(w.decode()).name for w in name]
                    key = next((w for w in words if w.startswith("flashcore") or w == "ncu"), "other")
                    pages = int((entry / "statm").read_text().split()[1])
                    sizes[key] = sizes.get(key, 0.0) + pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            except (OSError, ValueError, IndexError):
                continue
        return sizes

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _ancestors(pid: int) -> list[int]:
    results: list[int] = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        results.append(pid)
    return results


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Edits, waits for the answers, and repeats some with profile.

    Raises:
        UsageError: no such variant, or its source lacks the line that edits replace.
    """
    suite = load.load(Path(options.suite))
    variant = suite.variants.get(options.variant)
    file = getattr(variant.kind, "file", None) if variant else None
    if file is None or _LINE not in (Path(options.suite) / file).read_text(encoding="utf-8"):
        raise UsageError(
            f"--variant {options.variant}: expected a source in {suite.name} with the line {_LINE.strip()}"
        )
    gpu = Gpu.find()
    results: dict[str, Any] = {"machine": raw.machine(), "gpu": gpu.name if gpu else None, "parts": {}}
    with tempfile.TemporaryDirectory(prefix="flashcore-bench-") as name:
        folder = Path(name)
        shutil.copytree(options.suite, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
        source = folder / "suite" / file
        text = source.read_text(encoding="utf-8")
        shapes = options.shape or ["mission"]
        watched = Watched(folder, options.variant, shapes)
        try:
            results["first"] = list(watched.answered())
            results["parts"]["one shape"] = [_save(watched, source, text, i, pause=PAUSE) for i in range(options.edits)]
            planted = [*_PLANTED, *[("", _LINE)] * options.compared][: options.compared if gpu else 0]
            compared = [_save(watched, source, text, 100 + i, edit) for i, edit in enumerate(planted)]
            rest = range(options.edits + options.compared, options.saves)
            results["memory"] = [_save(watched, source, text, 1000 + i, last="faster")["memory"] for i in rest]
        finally:
            watched.close()
            results["log"] = (folder / "watch.log").read_text(encoding="utf-8")[-2000:]
        # A running watch has a CUDA context, which voids the times of other commands.
        results["compared"] = []
        if compared:
            source.write_text(text, encoding="utf-8")
            for i, edit in enumerate(planted):
                _edit(folder / "suite" / f"{_EDIT}{i}.cu", text, 100 + i, edit)
            profiled = _profiled(folder, suite.variants[options.variant].name, len(planted), shapes[0])
            results["compared"] = [{**save, "profile": one} for save, one in zip(compared, profiled, strict=True)]
        if gpu and options.edits:
            watched = Watched(folder, options.variant, ())
            try:
                list(watched.answered())
                edits = range(max(1, options.edits // 5))
                results["parts"]["all shapes"] = [_save(watched, source, text, 2000 + i, pause=PAUSE) for i in edits]
            finally:
                watched.close()
    return results


def _edit(source: Path, text: str, number: int, edit: tuple[str, str]) -> None:
    edited = text.replace(_LINE, edit[1])
    source.write_text(f"{edited}\n__constant__ int flashcore_edit = {number};\n", encoding="utf-8")


def _save(
    watched: Watched, source: Path, text: str, number: int, edit: tuple[str, str] = ("", _LINE), *,
    last: str = "idle", pause: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """One edit and its answers; ``seconds`` of each question are those of its last answer, of budgets the first."""
    started = time.monotonic()
    _edit(source, text, number, edit)
    what = edit[0]
    answers = list(watched.answered(last))
    seconds: dict[str, float] = {}
    for answer in (a for a in answers if a["event"] == "answer"):
        if answer["question"] != "budgets" or "budgets" not in seconds:
            seconds[answer["question"]] = answer["seconds"]
    print(number, what, seconds, [a.get("message") for a in answers if a["event"] == "error"], file=sys.stderr)
    time.sleep(pause)
    steps = [(round(at - started, 3), step) for at, step in watched.steps]
    return {"what": what, "seconds": seconds, "answers": answers, "steps": steps, "memory": watched.memory()}


def _profiled(folder: Path, variant: str, edits: int, shape: str) -> list[dict[str, Any]]:
    """What ``flashcore profile`` records of each edit: a variant each, of one run."""
    manifest = folder / "suite" / "suite.toml"
    files = [manifest, *sorted((folder / "suite" / "variants").glob("*.toml"))]
    (table,) = [v[variant] for f in files if variant in (v := tomllib.loads(f.read_text("utf-8")).get("variant", {}))]
    kept = {key: table[key] for key in table.keys() - {"parent", "predictions", "source"}}
    names = [f"{_EDIT}{i}" for i in range(edits)]
    variants = {name: {**kept, "source": f"{name}.cu"} for name in names}
    (folder / "suite" / "edits.toml").write_text(tomlkit.dumps({"variant": variants}), encoding="utf-8")
    suite = tomlkit.parse(manifest.read_text(encoding="utf-8"))
    suite["manifests"] = [*suite.get("manifests", []), "edits.toml"]
    manifest.write_text(tomlkit.dumps(suite), encoding="utf-8")
    words = ["profile", "--suite", "suite", "--variant", f"{_EDIT}*", "--shape", shape, "--first", "0", "--no-roofs"]
    done = subprocess.run(
        python_process.command("flashcore", *words, "-o", "report", "--time-limit", "10"), cwd=folder,
        env=python_process.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=edits * _TIME_LIMIT,
    )  # fmt: skip
    record = store.read(lookup.find(folder / "profiles", None))
    mode = record.suite.shapes[shape].rank_by
    return [
        {
            "code": done.returncode,
            "outcomes": {o.stage: o.status for o in record.outcomes if o.variant == name and o.shape == shape},
            "samples": list(record.samples.get((Case(name, shape), mode), ())),
        }
        for name in names
    ]


# --- figures --------------------------------------------------------------------------------------


def _medians(saves: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The seconds to each answer that every save gave."""
    return {
        q: median(s["seconds"][q] for s in saves) for q in _QUESTIONS if saves and all(q in s["seconds"] for s in saves)
    }


def _agreement(save: Mapping[str, Any]) -> str:
    """``equal`` if right is judged alike and the times differ by at most 5 %; where profile has no time, that is
    unmeasured."""
    last = {a["question"]: a for a in save["answers"] if a["event"] == "answer"}
    profile = save["profile"]
    if save["what"] == "does not compile":
        return "equal" if last["budgets"]["status"] == "failed" and "right" not in last else "DIFFERENT"
    if last.get("right", {}).get("status") != {"ok": "ok", "failed": "failed"}.get(profile["outcomes"].get("check")):
        return "DIFFERENT"
    if "faster" not in last:
        return "DIFFERENT" if profile["samples"] else "equal"
    if not profile["samples"]:
        return "equal but for the time, which profile has not measured"
    near = abs(last["faster"]["data"]["us"] / median(profile["samples"]) - 1) < 0.05
    return "equal" if near else "DIFFERENT"


def _growth(results: Mapping[str, Any]) -> dict[str, float]:
    """MiB that each process grew by per save, from the first third of the saves of one session to the last."""
    sizes = [s["memory"] for s in results["parts"]["one shape"]] + [s["memory"] for s in results.get("compared", ())]
    sizes += results["memory"]
    names = {name for size in sizes for name in size}
    third = max(1, len(sizes) // 3)
    return {
        name: (median(s.get(name, 0.0) for s in sizes[-third:]) - median(s.get(name, 0.0) for s in sizes[:third]))
        / max(1, len(sizes) - third)
        for name in sorted(names)
    }


def _verdicts(results: Mapping[str, Any]) -> dict[str, bool]:
    one = _medians(results["parts"]["one shape"])
    if results["gpu"] is None:
        return {"without a GPU": max(one.values()) <= WITHOUT_GPU}
    every = _medians(results["parts"].get("all shapes", ()))
    verdicts = {f"{q} {limit:g} s": q in one and one[q] <= limit for q, limit in TARGETS.items()}
    verdicts[f"all shapes {ALL_SHAPES:g} s"] = bool(every) and max(every.values()) <= ALL_SHAPES
    if compared := results.get("compared"):
        verdicts["answers of profile"] = all(_agreement(save) == "equal" for save in compared)
    return verdicts


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures, for reading."""
    lines = [f"{results['gpu'] or 'no GPU'}, {results['machine']}"]
    for part, saves in results["parts"].items():
        times = ", ".join(f"{q} {s:.2f} s" for q, s in _medians(saves).items())
        lines.append(f"{part}: medians of {len(saves)} saves: {times}")
    for save in results.get("compared", ()):
        lines.append(f"compared: {save['what'] or 'harmless edit'}: {_agreement(save)}")
    lines += [f"memory: {name}: {mib:+.2f} MiB per save" for name, mib in _growth(results).items()]
    return [*lines, *(f"{'met' if met else 'MISSED'}: {name}" for name, met in _verdicts(results).items())]


if __name__ == "__main__":
    sys.exit(main())
