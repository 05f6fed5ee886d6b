"""The gate on a small, real part of the attention suite, in this process: what it says of one mutant after the other.

It is the gate's own code path from the manifest to the verdicts. Two things are put in its place: the variants that are
built (:data:`VARIANTS`, for one arch), and where recorded runs come from, so that one is read once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import os
import re
import shutil
import subprocess
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.build import nvcc_command
from flashcore.cli import gate
from flashcore.errors import FlashcoreError
from flashcore.machine import toolchain
from flashcore.model.cause import cause_text
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.pipeline import judging
from flashcore.pipeline.make_record import present_record
from flashcore.records import assemble, lookup
from flashcore.stages import context
from flashcore.suites import load as loading

ROOT = Path(__file__).parents[2]
VARIANTS = ("scalar_row", "fewer_syncs", "mma_registers", "tma_split_keys_pdl")
ARCH = "sm_90a"
_DAY = datetime.date(2026, 11, 22)


@dataclass(frozen=True, slots=True)
class Said:
    """The gate's answer: an error's text, or each verdict's status and reason, and the stale cases.

    ``objects`` are the built (cubin, object file) of each variant.
    """

    error: str = ""
    crashed: bool = False
    exit_code: int = -1
    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stale: Mapping[str, str] = field(default_factory=dict)
    suite: Suite | None = None
    objects: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Workplace:
    """A copy of the suite, of the harness' headers and of a published run, each to be mutated."""

    def __init__(self, folder: Path, run: str) -> None:
        ignore = shutil.ignore_patterns("__pycache__")
        self.folder = folder
        self.suite = shutil.copytree(ROOT / "kernels" / "attention", folder / "suite", ignore=ignore)
        self.include = shutil.copytree(nvcc_command.HARNESS_INCLUDE, folder / "include")
        self.profiles = folder / "profiles"
        self.build = folder / "build"
        zipfile.ZipFile(ROOT / "profiles" / f"{run}{lookup.PACKED}").extractall(self.profiles)
        self.run = self.profiles / run
        nvcc_command.HARNESS_INCLUDE = self.include
        vars(context)["select"] = vars(judging)["select"] = self._select
        os.environ["CUDA_ARCH"] = ARCH.removeprefix("sm_")
        self.chosen: tuple[str, ...] = VARIANTS
        self._published = assemble.to_join
        self.recorded: list[Record] | None = None
        assemble.to_join = self._to_join
        self.recorded = [*assemble.to_join(self.profiles, "attention", None)]
        self.twin = self.recorded  # as if recorded here: see :meth:`as_if_built_here`

    def _select(
        self, suite: Suite, globs: Sequence[str] = (), shapes: Sequence[str] = ()
    ) -> tuple[list[Variant], list[Shape]]:
        variants, selected_shapes = loading.select(suite, globs, shapes)
        return [v for v in variants if v.name in self.chosen], selected_shapes

    def _to_join(
        self, places: lookup.Places, suite: str, gpu: str | None, *, before: str | None = None
    ) -> Iterator[Record]:
        if self.recorded is None:
            return self._published(places, suite, gpu, before=before)
        return iter(self.recorded if suite == "attention" else ())

    def as_if_built_here(self) -> None:
        """Gives the published run the keys of the sources as they are, made by this machine's compilers."""
        present = present_record(self._settings(), lambda _: None)
        self.twin = [dataclasses.replace(self._pristine[0], keys={**self._pristine[0].keys, **present.keys})]

    @property
    def _pristine(self) -> list[Record]:
        assert self.recorded is not None
        return self.recorded

    def _settings(self) -> Settings:
        return Settings(suite=str(self.suite), profiles=str(self.profiles), build=str(self.build), upto=None)

    def ask(self, chosen: tuple[str, ...] = VARIANTS, *, twin: bool = False, reread: bool = False) -> Said:
        """The gate's present answer for these variants.

        Args:
            twin: judge by the record that was as if built here.
            reread: the record was mutated too: read it from the disk.
        """
        kept, self.chosen = self.recorded, chosen
        self.recorded = None if reread else self.twin if twin else kept
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                record = present_record(self._settings(), lambda _: None)
                report = self.folder / "gate.json"
                judged = judging.judge_record(judging.Rules(require="timing", variants=("*",), day=_DAY), record)
                gate.show(judged, [("json", str(report))])
                code = judged.judgement.exit_code
        except FlashcoreError as error:
            return Said(error=str(error))
        except Exception:
            return Said(error=traceback.format_exc(limit=-2), crashed=True)
        finally:
            self.recorded = kept
        data = json.loads(report.read_text(encoding="utf-8"))
        verdicts = {_name(v): (v["status"], v["reason"]) for v in data["verdicts"] if v["severity"] == "limit"}
        stale = {str(case): cause_text(cause) for case, cause in record.stale.items()}
        objects = {
            a.variant: (a.cubin, str(Path(a.cubin).with_name("variant.o")))
            for a in record.artifacts
            if a.status == "ok" and a.cubin
        }
        rows = [json.dumps(row) for row in (data["changed"] or {"rows": []})["rows"]]  # since the baseline
        return Said("", False, int(code), verdicts, stale, record.suite, objects, (*data["notes"], *rows))


def _name(verdict: Mapping[str, Any]) -> str:
    subject = verdict["subject"]
    return " ".join([verdict["budget"], *(str(v) for v in subject.values() if v is not None)])


_BAD = {"pass": 0, "waived": 1, "open": 1, "unmeasured": 2, "fail": 3}


def noticed(before: Said, after: Said) -> str:
    """The difference that the gate shows; empty if there is none."""
    if after.error:
        words = after.error.strip().splitlines()
        return f"crash: {words[-1][:200]}" if after.crashed else f"refused: {words[0][:200]}"
    worse = {
        n: v for n, v in after.verdicts.items() if _BAD[v[0]] > _BAD[before.verdicts.get(n, ("pass", ""))[0]]
    }  # fmt: skip
    for name, (status, reason) in worse.items():
        if status == "fail":
            return f"gate: fails {name}: {reason.splitlines()[0][:160] if reason else ''}"
    if new := {c: why for c, why in after.stale.items() if c not in before.stale}:
        case, why = next(iter(new.items()))
        return f"{why} ({case} and {len(new) - 1} more)"
    for name, (status, reason) in worse.items():
        return f"gate: {status}: {name}: {reason[:160]}"
    if after.exit_code != before.exit_code:
        return f"gate: exit {after.exit_code}, was {before.exit_code}"
    if new_notes := [n for n in after.notes if n not in before.notes]:
        return f"gate: note: {new_notes[0][:160]}"
    return ""


# --- proof that two builds are the same -------------------------------------------------------------

_DRAWN = re.compile(r"tmpxft_\w+-\d+|_GLOBAL__N__\w+|[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}(_\d+)?|__nv_module_id\w*")
_OF_NO_ACCOUNT = re.compile(
    r"(?:Contents of section |RELOCATION RECORDS FOR \[)"
    r"(\.nv_fatbin|\.nvFatBinSegment|__nv_module_id|\.comment|\.note|\.eh_frame|\.debug)"
)
#: Sections that say how a cubin was made, not what it does: for debuggers, and the options of ptxas.
_DEBUG = re.compile(r"^\s*\.section\s+\.((nv_)?debug|note\.nv\.tkinfo).*?(?=^\s*\.section\s|\Z)", re.M | re.S)


def same_code(before: Mapping[str, tuple[str, str]], after: Mapping[str, tuple[str, str]]) -> bool:
    """Whether two builds are the same by tools that know nothing of freshness: nvdisasm prints all of the cubins alike
    but for debug sections, objdump all of the objects but for those that hold the device code, and for drawn names."""
    return before.keys() == after.keys() and all(_printed(before[v]) == _printed(after[v]) for v in before)


_prints: dict[tuple[str, str], tuple[str, str]] = {}


def _printed(pair: tuple[str, str]) -> tuple[str, str]:
    if pair not in _prints:
        _prints[pair] = (_device(Path(pair[0])), _host(Path(pair[1])))
    return _prints[pair]


def _device(cubin: Path) -> str:
    text = _output([str(toolchain.optional_tool("nvdisasm")), str(cubin)])
    return _DEBUG.sub("", text)


def _host(file: Path) -> str:
    blocks = re.split(
        r"^(?=Contents of section |RELOCATION RECORDS FOR )", _output(["objdump", "-s", "-r", str(file)]), flags=re.M
    )
    return _DRAWN.sub("", "".join(b for b in blocks[1:] if not _OF_NO_ACCOUNT.match(b)))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for a while."""
    kept = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
