"""Tries mutants: puts each in place, asks the gate or the judge, and puts the original back."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks.mutants import answers, gate, operators
from benchmarks.mutants.drawing import RUN, SUITE, Mutant
from flashcore.build import nvcc_command
from flashcore.errors import FlashcoreError
from flashcore.gate import baseline
from flashcore.model.gate_policy import ALLOWANCES
from flashcore.model.suite import Suite, Variant
from flashcore.records import store


class Trial:
    """Tries mutants in a workplace of its own."""

    def __init__(self, folder: Path, built: str | None) -> None:
        self.work = gate.Workplace(folder, RUN)
        if built is not None:
            shutil.copytree(built, self.work.build)
        (self.work.suite / "evil").mkdir()
        (self.work.suite / "evil" / "forced.h").write_text("#define SWIZZLE 1\n")
        shutil.copy(SUITE / "include/attention/head.cuh", self.work.suite / "evil" / "cuda_fp16.h")
        self.work.as_if_built_here()
        self._before: dict[tuple[tuple[str, ...], bool], gate.Said] = {}
        self._judge = answers.Judge(SUITE)
        self._pristine = store.read(self.work.run)

    def before(self, variants: tuple[str, ...], twin: bool) -> gate.Said:
        """The gate's answer for the unchanged sources."""
        if (variants, twin) not in self._before:
            answer = self.work.ask(variants, twin=twin)
            if answer.error or (twin and answer.stale):
                raise SystemExit(f"expected the sources as they are to be fresh, found {answer.error or answer.stale}")
            self._before[variants, twin] = answer
        return self._before[variants, twin]

    def of(self, mutant: Mutant) -> dict[str, Any]:
        """A row of the table."""
        row = {n: getattr(mutant, n) for n in ("group", "place", "operator", "before", "after")}
        began = time.monotonic()
        if mutant.group == "answer":
            _, a, b = next(m for m in answers.mutants() if m[0] == mutant.operator)
            complaints = self._judge.complaints(a, b)
            row |= {
                "published": "",
                "same_compilers": f"judge: {complaints[0][:160]}" if complaints else "",
                "equivalent": "",
            }
        elif mutant.group == "record":
            row |= self._record(mutant)
        else:
            row |= self._sources(mutant)
        outcome = "noticed" if row["same_compilers"] else "equivalent" if row["equivalent"] else "survived"
        return {**row, "outcome": outcome, "seconds": round(time.monotonic() - began, 2)}

    def _sources(self, mutant: Mutant) -> dict[str, str]:
        path = self.work.folder / mutant.file if mutant.file else None
        original = path.read_bytes() if path else b""
        flags, compile_flags = nvcc_command.FLAGS, nvcc_command.compile_flags

        def mutated(suite: Suite, variant: Variant, arch: str, debug: bool) -> tuple[str, ...]:
            return compile_flags(suite, replace(variant, flags=()) if mutant.flags else variant, arch, debug)

        if path and mutant.text is not None:
            path.write_text(mutant.text, encoding="utf-8")
        vars(nvcc_command).update(FLAGS=mutant.flags or flags, compile_flags=mutated)
        try:
            with gate.environment(dict(mutant.env)):
                twin = self.work.ask(mutant.variants, twin=True)
                # Manifests and baselines are the same for both.
                published = twin if mutant.group in ("manifest", "baseline") else self.work.ask(mutant.variants)
        finally:
            vars(nvcc_command).update(FLAGS=flags, compile_flags=compile_flags)
            if path:
                path.write_bytes(original)
        before = self.before(mutant.variants, True)
        texts = {
            "published": gate.noticed(self.before(mutant.variants, published is twin), published),
            "same_compilers": gate.noticed(before, twin),
            "equivalent": "",
        }
        if not texts["same_compilers"]:
            texts["equivalent"] = self._equivalent(mutant, before, twin)
            texts["kind"] = kind(before.suite, twin.suite)
            if mutant.group == "baseline":
                texts["kind"] = baseline_kind(original.decode(), mutant.text or "")
        return texts

    def _equivalent(self, mutant: Mutant, before: gate.Said, after: gate.Said) -> str:
        if mutant.group == "problem":  # it runs on the GPU's machine alone
            return ""
        if mutant.group == "baseline":
            return "" if baseline_kind((SUITE / "baseline.txt").read_text(), mutant.text or "") else "read as the same"
        if before.suite is not None and after.suite is not None and plain(before.suite) != plain(after.suite):
            return ""
        if not gate.same_code(before.objects, after.objects):
            return ""
        return "same suite, device code and host code"

    def _record(self, mutant: Mutant) -> dict[str, str]:
        path = self.work.folder / mutant.file
        original = path.read_bytes()
        try:
            done = changed_record(path, mutant)
            answer = self.work.ask(mutant.variants, reread=True)
            same = self._same_record(path.parent)
        finally:
            path.write_bytes(original)
        before = self.before(mutant.variants, False)
        notice = gate.noticed(before, answer)
        return {**done, "published": notice, "same_compilers": notice, "equivalent": "" if notice else same}

    def _same_record(self, folder: Path) -> str:
        """True if the run reads as before its mutation."""
        try:
            now, then = store.read(folder), self._pristine
        except FlashcoreError:
            return ""
        looked_up = [{(f.name, f.subject): f for f in r.facts} for r in (now, then)]
        alike = looked_up[0] == looked_up[1] and now.samples == then.samples
        rest = [replace(r, facts=then.facts, raw_samples={}) for r in (now, then)]
        return "read as the same" if alike and rest[0] == rest[1] else ""


def changed_record(path: Path, mutant: Mutant) -> dict[str, str]:
    """Mutates a file of the run in place; what stood there, and stands there now."""
    chance = random.Random(mutant.seed)
    data = path.read_bytes()
    if mutant.operator == "absent":
        path.unlink()
        return {}
    if mutant.operator in ("cut short", "empty"):
        path.write_bytes(data[: chance.randrange(1, len(data)) if mutant.operator == "cut short" else 0])
        return {}
    if mutant.operator == "bit flipped":
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        return {"place": f"{mutant.place} byte {at}"}
    packed = path.suffix == ".gz"
    whole = json.loads(gzip.decompress(data) if packed else data)
    done = (_change_facts if packed else _change_header)(whole, mutant.operator, chance)
    text = json.dumps(whole).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if packed else text)
    return {k: str(v)[:160] for k, v in done.items()}


def _change_facts(whole: dict[str, Any], operator: str, chance: random.Random) -> dict[str, Any]:
    subjects, rows = whole["subjects"], whole["facts"]
    candidates = [i for i, r in enumerate(rows) if subjects[r[0]][1] in gate.VARIANTS]
    at = chance.choice(candidates)
    before = f"{subjects[rows[at][0]]} {rows[at][1:]}"
    how = operator
    if operator == "row dropped":
        del rows[at]
        return {"before": before, "after": "", "kind": "a fact gone"}
    if operator == "row doubled":
        rows.insert(at, [*rows[at]])
    elif operator == "subject changed":
        rows[at][0] = chance.randrange(len(subjects))
    else:
        how, _, _ = operators.changed_leaf(rows[at], [chance.randrange(1, 6)], chance)
    return {"before": before, "after": rows[at], "operator": f"{operator}: {how}" if how != operator else how,
            "kind": "a fact's value"}  # fmt: skip


def _change_header(whole: dict[str, Any], operator: str, chance: random.Random) -> dict[str, Any]:
    cases = [i for i, o in enumerate(whole["outcomes"]) if o["variant"] in gate.VARIANTS]
    if operator == "outcome changed":
        way: tuple[Any, ...] = ("outcomes", chance.choice(cases))
    elif operator == "key changed":
        keys = [i for i, (case, _) in enumerate(whole["keys"]) if case["variant"] in gate.VARIANTS]
        way = ("keys", chance.choice(keys), 1)
    else:
        way = (chance.choice([k for k in whole if k not in ("outcomes", "keys")]),)
    place = whole
    for key in way:
        place = place[key]
    leaf = chance.choice(list(operators.leaves(place, way)))
    how, old, new = operators.changed_leaf(whole, leaf, chance)
    where = ".".join(map(str, leaf))
    top = {"outcome changed": "outcomes", "key changed": "keys"}.get(operator, str(leaf[0]))
    return {"place": f"run.json {where}", "operator": f"{operator}: {how}", "before": old, "after": new, "kind": top}


# --- why one is left --------------------------------------------------------------------------------

#: Fields that are read by people alone, wherever in a suite they stand.
_PROSE = {"title", "notes", "technique", "also", "tolerance_reason", "source", "document", "documents", "reason"}


def plain(value: Any) -> Any:
    """A suite without the place where it lies and without what is mere prose."""
    if hasattr(value, "__dataclass_fields__"):
        of_file = type(value).__name__ == "Variant"
        return {
            f.name: plain(getattr(value, f.name))
            for f in fields(value)
            if (f.name not in _PROSE or (of_file and f.name == "source"))
            and f.name not in ("root", "line", "file_line")
        }
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def kind(before: Suite | None, after: Suite | None) -> str:
    """Which parts of the suite differ: ``budgets``, ``waivers``, ``variants.predictions``; ``prose`` alone; nothing."""
    if before is None or after is None:
        return ""
    a, b = plain(before), plain(after)
    parts = []
    for name in a:
        if a[name] == b[name]:
            continue
        if isinstance(a[name], dict) and a[name].keys() == b[name].keys():
            inner = [(x, b[name][key]) for key, x in a[name].items() if x != b[name][key]]
            parts += [f"{name}.{f}" for x, y in inner if isinstance(x, dict) for f in x if x[f] != y.get(f)]
        else:
            gone = isinstance(a[name], list | dict) and len(b[name]) < len(a[name])
            parts.append(f"{name} fewer" if gone else name)
    return ", ".join(dict.fromkeys(parts)) or ("prose" if before != after else "")


def baseline_kind(before: str, after: str) -> str:
    """The differences of two baselines: missing or new facts, looser or stricter values."""
    old, new = (baseline.parse(text).values for text in (before, after))
    kinds = ["facts gone"] if old.keys() - new.keys() else []
    kinds += ["facts more"] if new.keys() - old.keys() else []
    for key in old.keys() & new.keys():
        if old[key] != new[key]:
            allows = ALLOWANCES[key.fact].improves(old[key], new[key])
            kinds.append("a value that allows more" if allows else "a value that allows less")
    return ", ".join(dict.fromkeys(kinds))


def work(folder: str, built: str | None, todo: Any, done: Any) -> None:
    """A process that tries what is in one queue and puts the rows into the other, until it is ended."""
    Path(folder).mkdir()
    trial = Trial(Path(folder), built)
    while True:
        i, data = todo.get()
        mutant = Mutant(**data)
        done.put((i, trial.of(mutant)))
