"""The record of a run: put together from what was measured here and what recorded runs of the same GPU add.

While a run is under way, its folder remembers what it was begun with, so that it can be resumed.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.machine.environment import of_this_machine
from flashcore.model import files
from flashcore.model.record import Facts, Origin, Record, Roof
from flashcore.pipeline.state import GPU_STAGES, Line, Settings
from flashcore.runs import freshness, store

_SETTINGS = "settings.json"
_MOST_RUNS = 8  # that are read to join from, should each be of a few variants


def record_of(line: Line, run_id: str, *, before: str | None, roofs: tuple[Roof, ...] | None = None) -> Record:
    """Puts together what was measured here and what recorded runs of the same GPU add, newest first.

    A run of one variant adds what it measured of that variant; what it did not measure comes from the
    runs before it. Without a GPU the newest measured run says which GPU the record is about.

    Args:
        before: the run whose elders are joined; ``None``: all are.
        roofs: this machine's, where they were measured; else those of the newest run that has any.
    """
    suite = line.suite
    created = datetime.datetime.strptime(run_id.split("-")[0], "%Y%m%dT%H%M%SZ").isoformat() + "Z"
    recorded = _recorded(line, before)
    arch = line.gpu_arch or (recorded[0].gpu_arch if recorded else None) or suite.archs[-1]
    pairs = [(v, s) for s in line.shapes for v in line.variants if v.runs_on(s)]
    keys = freshness.case_keys(suite, pairs, line.artifacts, line.plans, arch, line.nvcc or "")
    facts, outcomes, samples = list(line.facts), list(line.outcomes), dict(line.samples)
    done: set[tuple[str, str]] = {(o.case, o.stage) for o in line.outcomes if o.status in ("ok", "failed")}
    # What a case that is wrong today once took is no result.
    wrong = {o.case for o in line.outcomes if o.stage == "check" and o.status == "failed"}
    done |= {(case, stage) for case in wrong for stage in GPU_STAGES}
    stale: dict[str, str] = {}
    joined: list[Origin] = []
    for run in recorded:
        more, earlier, old, reasons, origin = freshness.join(run, keys, done)
        for case, reason in reasons.items():
            stale.setdefault(case, reason)
        facts += more
        outcomes += earlier
        samples = {**old, **samples}
        done |= {(o.case, o.stage) for o in earlier}
        if origin is not None:
            joined.append(origin)
            line.say(f"join: {origin.what} from run {origin.run} on {origin.machine}")
    stale = {case: reason for case, reason in stale.items() if not any((case, stage) in done for stage in GPU_STAGES)}
    if stale:
        line.say(f"join: {len(stale)} cases are stale or were never measured, and count as unmeasured")
    environment = of_this_machine(
        Path(suite.root), toolchain.find_nvcc(Path(line.settings.build)), line.gpu, line.gpu_arch, line.ncu
    )
    return Record(
        id=run_id,
        created=created,
        command=line.settings.command,
        suite=suite,
        environment=environment,
        artifacts=tuple(line.artifacts),
        plans=tuple(line.plans),
        outcomes=tuple(outcomes),
        stages=tuple(line.notes),
        facts=Facts(facts),
        keys=keys,
        stale=stale,
        joined=tuple(joined),
        samples=samples,
        roofs=next((r.roofs for r in recorded if r.roofs), ()) if roofs is None else roofs,
    )


def _recorded(line: Line, before: str | None) -> list[Record]:
    """Measured runs of this suite before that one, newest first, all of one GPU: this machine's, or without
    one that of the newest. None if the user wants none joined."""
    found: list[Record] = []
    if not line.settings.join:
        return found
    for run in store.measured_runs(Path(line.settings.profiles), line.suite.name, before=before):
        gpu = line.gpu.name if line.gpu else found[0].gpu if found else run.gpu
        if run.gpu != gpu:
            continue
        found.append(run)
        own = [o for o in run.outcomes if not o.origin]
        whole = set(run.suite.variants) <= {o.variant for o in own} and set(GPU_STAGES) <= {o.stage for o in own}
        if whole or len(found) == _MOST_RUNS:
            break
    return found


def remember(folder: Path, settings: Settings, closures: Mapping[str, str]) -> None:
    """Writes down what a run begins with: the user's choice and the sources, so that it can be resumed."""
    data = {"settings": dataclasses.asdict(settings), "closures": closures}
    files.write_atomically(folder / _SETTINGS, json.dumps(data).encode())


def require_same(folder: Path, closures: Mapping[str, str]) -> None:
    """Only the sources that a run began with may be measured into it.

    Raises:
        UsageError: they are others now.
    """
    began: dict[str, str] = json.loads((folder / _SETTINGS).read_bytes())["closures"]
    if began.keys() != closures.keys():
        raise UsageError(
            f"{folder}: expected the variants and archs that the run began with "
            f"({', '.join(sorted({name.split()[1] for name in began}))}), found others "
            f"({', '.join(sorted({name.split()[1] for name in closures}))})\n"
            "  to mend: resume on the machine where it began, or record a new run (without --resume)"
        )
    if began != closures:
        raise UsageError(
            f"{folder}: expected the sources that the run began with, found others\n"
            "  to mend: record a new run (without --resume); the old folder can be deleted"
        )


def forget(folder: Path) -> None:
    """Of a run that is whole there is nothing to resume."""
    (folder / _SETTINGS).unlink(missing_ok=True)


def unfinished(settings: Settings) -> tuple[Path, Settings]:
    """The newest run of this suite that did not end, and what the user chose when it began.

    Raises:
        UsageError: there is none.
    """
    for folder in store.unfinished(Path(settings.profiles)):
        try:
            data: dict[str, Any] = json.loads((folder / _SETTINGS).read_bytes())["settings"]
        except (OSError, ValueError, KeyError):
            continue
        if data["suite"] == settings.suite:
            data["shapes"], data["modes"] = tuple(data["shapes"]), tuple(data["modes"])
            return folder, Settings(**data)
    raise UsageError(f"{settings.profiles}: expected an unfinished run of {settings.suite} to resume, found none")


def keep_raw(line: Line, folder: Path) -> None:
    """Keeps what the tools said, compressed: ptxas's logs (ninja will not print them again), the stages'
    journals and logs. The run is whole by now, so nothing has to be read from them again."""
    logs = folder / "ptxas"
    with files.writing(logs):
        logs.mkdir(exist_ok=True)
        for artifact in line.artifacts:
            if artifact.log is not None:
                shutil.copyfile(artifact.log, logs / f"{artifact.variant}-{artifact.arch}.log")
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent != folder and path.suffix not in (".gz", ".ncu-rep"):
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                path.unlink()
