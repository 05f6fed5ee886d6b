"""Many GPUs: what sharing costs, what is lost when workers and hosts die, and what two GPUs gain over one.

    python -m benchmarks.gpus [--cases N] [--standins N] [--kills N] [--gpu --suite DIR]

Without a GPU: stand-ins, that is real children that sleep, on as many GPUs as are made up. Scale counts what sharing
adds to the sleep, at a tenth, a third and all of the cases, each with a driver killed (SIGKILL) half-way and begun
again. A bare loop, as many children that sleep as often and nothing else, tells how much of it is the machine's.
Kills are at random moments of workers and of whole nodes, with all their processes, of a Ray cluster on this machine
(needs Ray). With ``--gpu``: ``flashcore profile`` of a suite on one GPU of this host and on all of them, in turns; with
``--runs``: what such commands have recorded before, a folder of runs each.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import UsageError
from flashcore.machine import python_process
from flashcore.model.settings import Limits
from flashcore.records import lookup, store
from flashcore.runner.journal import Share, Task, TaskResult, lost_in, measured_on, messages, read_journal
from flashcore.runner.process import LocalGpu, Program
from flashcore.runner.queue import Pool

_CHILD = (
    "import os, sys, time\nfrom flashcore.runner.child import child\n"
    "def perform(task, journal):\n"
    "    if note := task.payload['note']:\n"
    "        open(note, 'a').write(f'{task.name} {os.getppid()}\\n')\n"
    "    time.sleep(task.payload['seconds'])\n    return {'slept': task.payload['seconds']}\n"
    "sys.exit(child(sys.argv[1:], perform))\n"
)
_BARE = "import sys, time\nfor _ in range(int(sys.argv[1])): time.sleep(float(sys.argv[2]))\n"
_OF_A_SHAPE = 4
_ENDED = (0, 1, 3)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; 1 if a case was lost or answered twice."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: 1 if _wrong(f) else 0)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=100_000, metavar="N", help="of the scale; 0: leave it out")
    parser.add_argument("--standins", type=int, default=16, metavar="N", help="GPUs that share them")
    parser.add_argument("--seconds", type=float, default=0.02, metavar="S", help="that a case takes")
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="of workers and nodes; 0: leave it out")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--gpu", action="store_true", help="one GPU against all of this host, and nothing else")
    parser.add_argument("--runs", nargs="+", metavar="DIR", help="instead of --gpu: the newest run of each")
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the requested parts."""
    if options.driver:
        folder, cases, standins, seconds = options.driver
        _share(Path(folder), int(cases), [LocalGpu(f"GPU-{i}") for i in range(int(standins))], float(seconds))
        sys.exit(0)
    results: dict[str, Any] = {"machine": raw.machine()}
    with tempfile.TemporaryDirectory(prefix="flashcore-gpus-") as name:
        if options.runs:
            rows = [_row(Path(folder)) for folder in options.runs]
            if len({r["gpus"] == 1 for r in rows}) != 2:
                counts = ", ".join(str(r["gpus"]) for r in rows)
                raise UsageError(f"--runs: expected runs of one GPU and of several, found runs of {counts}")
            return {"machine": "; ".join(dict.fromkeys(r["machine"] for r in rows)), "gpu": rows}
        if options.gpu:
            return {**results, "gpu": _one_against_all(options.suite, Path(name))}
        if options.cases:
            results["scale"] = [
                _scale(Path(name) / str(n), n, options.standins, options.seconds)
                for n in (options.cases // 10, options.cases // 3, options.cases)
            ]
        if options.kills:
            results["kills"] = _killed(Path(name) / "kills", options.kills, random.Random(options.seed))
    return results


def _tasks(cases: int, seconds: float, note: str = "") -> list[Task]:
    payload = {"seconds": seconds, "note": note}
    return [Task(f"v{i % _OF_A_SHAPE}/s{i // _OF_A_SHAPE}", payload) for i in range(cases)]


def _command(task_file: Path, journal: Path) -> list[str]:
    return [sys.executable, "-P", "-c", _CHILD, str(task_file), str(journal)]


def _share(folder: Path, cases: int, places: Sequence[Any], seconds: float, note: str = "") -> list[TaskResult]:
    program = Program(command=_command, limits=Limits(batch=1024))
    with Pool(places) as workers:
        return workers.run(_tasks(cases, seconds, note), program, folder)


def _answers(folder: Path) -> Counter[str]:
    """The number of results for each task."""
    written = (message for path in folder.glob("*.jsonl") for message in read_journal(path))
    return Counter(m.name for m in written if isinstance(m, TaskResult) and m.status == "ok")


# --- scale --------------------------------------------------------------------------------------


def _scale(folder: Path, cases: int, standins: int, seconds: float) -> dict[str, Any]:
    """A bare loop, one driver from beginning to end, and another that is killed half-way and begun again."""
    row: dict[str, Any] = {"cases": cases, "standins": standins, "ideal_s": round(cases * seconds / standins, 3)}
    row["bare_load"] = os.getloadavg()[0]
    began = time.monotonic()
    shares = [len(range(i, cases, standins)) for i in range(standins)]
    bare = [subprocess.Popen([sys.executable, "-P", "-c", _BARE, str(n), str(seconds)]) for n in shares]
    for child in bare:
        child.wait()
    row["bare_s"] = round(time.monotonic() - began, 3)
    row["load"] = os.getloadavg()[0]
    argv = ["--driver", str(folder / "whole"), str(cases), str(standins), str(seconds)]
    began = time.monotonic()
    row |= _driver(argv)
    row["wall_s"] = round(time.monotonic() - began, 3)
    twice = [n for n, times in _answers(folder / "whole").items() if times > 1]
    argv[1] = str(folder / "killed")
    process = subprocess.Popen(_python(argv), cwd=raw.ROOT, env=python_process.environment())
    while process.poll() is None and len(_answers(folder / "killed")) < cases // 2:
        time.sleep(max(0.2, row["wall_s"] / 20))
    process.kill()
    process.wait()
    time.sleep(1.0)  # its children end with it
    before = _answers(folder / "killed")
    _driver(argv)
    after = _answers(folder / "killed")
    print(f"{cases}: {row}", file=sys.stderr, flush=True)
    return {
        **row, "at_kill": len(before), "lost": cases - len(after),
        "uses": len(set(measured_on(folder / "whole").values())),
        "twice": len(twice) + sum(times > 1 for times in after.values()),
    }  # fmt: skip


def _python(argv: list[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpus", *argv]


def _driver(argv: list[str]) -> dict[str, Any]:
    """The driver's own CPU seconds and MiB at most, without its children's."""
    code = (
        "import resource, sys\nfrom benchmarks import gpus\n"
        "try: gpus.main(sys.argv[1:])\nexcept SystemExit as e: assert not e.code\n"
        "u = resource.getrusage(resource.RUSAGE_SELF)\nprint(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=raw.ROOT, env=python_process.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    cpu, memory = done.stdout.split()[-2:]
    return {"cpu_s": round(float(cpu), 3), "mib": round(float(memory), 1)}


# --- kills --------------------------------------------------------------------------------------


def _killed(folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kills workers, and now and then a node that another one takes the place of, until there were so many."""
    import ray
    from ray.cluster_utils import Cluster

    from flashcore_cluster import cluster

    def alive(pid: int) -> bool:
        with contextlib.suppress(OSError):  # a killed one is not back yet
            return b"ray::_Actor" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    nodes = [ray_cluster.add_node(num_cpus=1, num_gpus=1) for _ in range(3)]
    done: list[str] = []
    folder.mkdir()
    rows: list[dict[str, Any]] = []
    try:
        places = cluster.connect(ray_cluster.address)
        while len(done) < kills:
            note, at = folder / f"performed-{len(rows)}", folder / str(len(rows))
            began, before = time.monotonic(), len(done)
            died: list[int] = []
            with ThreadPoolExecutor(1) as thread:  # Ray adds nodes in the main thread alone
                shared = thread.submit(_share, at, 600, places, 0.05, str(note))
                while not wait([shared], timeout=chance.uniform(0.5, 4.0)).done and len(done) < kills:
                    if len(done) % 5 == 4:
                        node = nodes.pop(chance.randrange(len(nodes)))
                        host = _below(node.all_processes["raylet"][0].process.pid)
                        died += filter(alive, host)
                        for pid in host:  # as a host dies: Ray alone would let its workers go on for a second
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                        ray_cluster.remove_node(node, allow_graceful=False)
                        nodes.append(ray_cluster.add_node(num_cpus=1, num_gpus=1))
                        done.append("node")
                    else:
                        pid = chance.choice(places).description.pid
                        if alive(pid):
                            died.append(pid)
                            os.kill(pid, signal.SIGKILL)
                            done.append("worker")
                results = shared.result()
            lines = [(name, int(pid)) for name, pid in map(str.split, note.read_text().splitlines())]
            answered, begun = _answers(at), Counter(name for name, _ in lines)
            row = {
                "cases": len(results), "kills": len(done) - before, "failed": sum(r.status != "ok" for r in results),
                "lost": len(results) - len(answered), "twice": sum(n > 1 for n in answered.values()),
                "begun_again": sum(begun.values()) - len(begun), "seconds": round(time.monotonic() - began, 1),
                "places_lost": len(lost_in(at)), "of_killed": _cost(lines, died),
            }  # fmt: skip
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    finally:
        ray.shutdown()
        ray_cluster.shutdown()
    return {"ray": ray.__version__, "rows": rows, "kinds": dict(Counter(done))}


def _below(pid: int) -> list[int]:
    """A process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    pids = [pid]
    for each in pids:
        pids += children.get(each, [])
    return pids


def _cost(begun: Sequence[tuple[str, int]], died: Sequence[int]) -> list[int]:
    """The number of cases begun by each killed worker that were begun again.

    Args:
        begun: a case and the worker that began it, in the order of time.
        died: the killed workers.
    """
    last = {name: i for i, (name, _) in enumerate(begun)}
    again = Counter(worker for i, (name, worker) in enumerate(begun) if i < last[name])
    return [again[worker] for worker in died]


# --- real GPUs ----------------------------------------------------------------------------------


def _one_against_all(suite: str, folder: Path) -> list[dict[str, Any]]:
    """One GPU, all, all, one."""
    for i, gpus in enumerate(("1", "all", "all", "1")):
        words = ("profile", "--suite", suite, "--profiles", str(folder / str(i)), "--gpus", gpus, "--no-roofs")
        done = subprocess.run([*python_process.command("flashcore"), *words], env=python_process.environment())
        if done.returncode not in _ENDED:
            raise SystemExit(f"flashcore {' '.join(words)}: exit {done.returncode}")
    return [_row(folder / str(i)) for i in range(4)]


def _row(profiles: Path) -> dict[str, Any]:
    """The newest run's seconds per stage, each GPU's share of them, and each case's median."""
    run = Path(str(lookup.find(profiles, None)))
    record = store.read(run)
    return {
        "gpus": len(record.gpus) or 1,
        "machine": f"{record.gpu}, driver {record.environment.driver}, torch {record.environment.torch}",
        "run": record.id,
        "stages": {n.stage: n.seconds for n in record.stages},
        "remarks": [g.remark for g in record.gpus if g.remark],
        "busy": {stage: _busy(run / stage) for stage in ("bench", "profile")},
        "medians": {
            str(case): statistics.median(v) for (case, mode), v in record.samples.items() if mode == "isolated"
        },
    }


def _busy(folder: Path) -> dict[str, float]:
    """Seconds that a task was in progress on each GPU, where one process at a time runs on it."""
    seconds_of: dict[str, float] = {}
    for path in folder.rglob("journal-*.jsonl.gz"):
        tasks = path.with_name(f"{path.name.replace('journal', 'tasks').removesuffix('.jsonl.gz')}.json.gz")
        gpu = Share.decode(gzip.decompress(tasks.read_bytes()).splitlines()[0]).gpu
        for message in messages(gzip.decompress(path.read_bytes())):
            if isinstance(message, TaskResult):
                seconds_of[gpu] = seconds_of.get(gpu, 0.0) + message.seconds
    return {gpu: round(seconds, 2) for gpu, seconds in seconds_of.items()}


# --- for reading --------------------------------------------------------------------------------


def _wrong(results: raw.Results) -> int:
    kills = results.get("kills", {}).get("rows", [])
    return sum(r["lost"] + r["twice"] + r.get("failed", 0) for r in [*results.get("scale", []), *kills])


def table(results: raw.Results) -> list[str]:
    """The results as lines of text."""
    lines = [results["machine"]]
    for r in results.get("scale", []):
        ways = (("wall_s", "ideal_s"), ("bare_s", "ideal_s"), ("wall_s", "bare_s"))
        over, bare, added = (100 * (r[a] / r[b] - 1) for a, b in ways)
        lines += [
            f"{r['cases']:7,} cases on {r['uses']} of {r['standins']} stand-ins: {r['wall_s']:.1f} s, "
            f"ideal {r['ideal_s']:.1f} s ({over:+.1f} %); a bare loop {r['bare_s']:.1f} s ({bare:+.1f} %), to which "
            f"sharing adds {added:+.1f} %; driver {1e6 * r['cpu_s'] / r['cases']:.0f} µs of CPU a case, "
            f"{r['mib']:.0f} MiB",
            f"        killed at {r['at_kill']:,} and begun again: {r['lost']} lost, {r['twice']} answered twice",
        ]
    if kills := results.get("kills"):
        rows = kills["rows"]
        total = {k: sum(r[k] for r in rows) for k in ("cases", "kills", "failed", "lost", "twice", "begun_again")}
        lines.append(
            f"Ray {kills['ray']}: {total['kills']} kills ({json.dumps(kills['kinds'])}) in {total['cases']:,} cases: "
            f"{total['failed']} failed, {total['lost']} lost, {total['twice']} answered twice; "
            f"{total['begun_again']} were in progress and begun again"
        )
        cost = [n for r in rows for n in r["of_killed"]]
        lines.append(
            f"        {len(cost)} workers died by them: of each {statistics.mean(cost):.2f} cases were begun again, "
            f"{max(cost)} at most; {sum(max(0, n - 1) for n in cost)} had been answered, and the answer had not arrived"
        )
    if rows := results.get("gpu"):
        one, both = ([r for r in rows if (r["gpus"] == 1) == first] for first in (True, False))
        for stage in one[0]["stages"]:
            a, b = (statistics.mean(r["stages"].get(stage, 0.0) for r in added) for added in (one, both))
            speed = f"{a / b if b else 0:.2f} times the speed"
            lines.append(f"{stage:9} {a:8.1f} s on one GPU, {b:8.1f} s on {both[0]['gpus']}: {speed}")
        change = [both[0]["medians"][k] / v - 1 for k, v in one[0]["medians"].items() if k in both[0]["medians"]]
        again = [r["medians"][k] / v - 1 for r in one[1:] for k, v in one[0]["medians"].items() if k in r["medians"]]
        for what, added in (("several against one", change), ("one against one (A/A)", again)):
            if not (worst := sorted(map(abs, added))):
                continue
            lines.append(
                f"medians, {what}: half within {100 * worst[len(added) // 2]:.2f} %, all within {100 * worst[-1]:.2f} %"
            )
        gpu_stages = ("check", "bench", "profile")
        a, b = (
            statistics.mean(sum(r["stages"].get(s, 0.0) for s in gpu_stages) for r in added) for added in (one, both)
        )
        lines.append(f"GPU stages {a:.1f} s on one GPU, {b:.1f} s on {both[0]['gpus']}: {a / b:.2f} times the speed")
        for stage, busy in both[0]["busy"].items():
            shares = ", ".join(f"{100 * s / both[0]['stages'][stage]:.0f} %" for s in busy.values())
            lines.append(f"a task was in progress for {shares} of {stage}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
