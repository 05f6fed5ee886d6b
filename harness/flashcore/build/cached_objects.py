"""The folders of compiled units: each is complete, named by its inputs, and lists what it contains."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.build import cache_key, launch_plan
from flashcore.build.builder import Builder
from flashcore.build.nvcc_command import HARNESS_INCLUDE
from flashcore.build.unit import CUBIN, HOST_TEXT, LINKED, LOG, MAKE_RULE, OBJECT, OPERATOR, PLAN, SASS, Unit
from flashcore.errors import ManifestError
from flashcore.model import cache
from flashcore.model.files import file_hash, writing
from flashcore.model.record import Artifact
from flashcore.readers import cubin, host_code
from flashcore.suites import lines
from flashcore.suites.parts import MANIFEST

_MANIFEST = "contents"  # lists a complete folder's contents


def move(builder: Builder, unit: Unit, problem: Path) -> tuple[Path, dict[str, Any], str]:
    """Moves a complete unit to its final folder; returns it, its contents, and why the next build cannot reuse it.

    Raises:
        ManifestError: no source reads a macro of the config.
        FlashcoreError: a source changed during compilation, or the folder cannot be written.
    """
    rule = (unit.folder / MAKE_RULE).read_text(encoding="utf-8", errors="surrogateescape")
    places = unit.libraries.headers
    key, files, reason = builder.inputs.learn(unit.name, unit.question, rule, problem, unit.flags, places)
    _refuse_unread(builder, unit, files)
    headers = {p.name: p.read_text(encoding="utf-8") for p in (problem / "flashcore").iterdir()}
    linked = builder.linked(unit.variant, unit.libraries)
    source_hash = builder.inputs.source_hash([unit.variant.name, unit.flags, *linked], files, headers)
    host, cxx = host_code.read(unit.folder / OBJECT) if unit.is_host else ("", "")
    host = cache_key.digest([host, linked]) if host and linked else host
    preprocessed = (unit.folder / HOST_TEXT).read_bytes()
    text = hashlib.sha256(re.sub(rb"(?m)^# \d.*\n", b"", preprocessed)).hexdigest()  # without names of files
    more = unit.is_host and launch_plan.may_launch_more(
        unit.folder / OBJECT, preprocessed, builder.suite.root, (builder.nvcc.root, HARNESS_INCLUDE)
    )
    for temporary in (HOST_TEXT, LINKED):
        (unit.folder / temporary).unlink(missing_ok=True)
    builder.inputs.refuse_changed(rule, problem)
    final = builder.name(unit, key)
    digests = {name: file_hash(unit.folder / name) for name in (*unit.wanted, LOG, OBJECT, SASS)}
    code = cubin.read(unit.folder / CUBIN, unit.arch).code
    contents = {"source_hash": source_hash, "code": code, "host": host, "cxx": cxx, "text": text, "more": more}
    contents["files"] = digests
    cache.keep(unit.folder, _MANIFEST, final.name, contents)
    with writing(final):
        if reason or not read(final, unit.wanted):  # damaged, or lacking files that this build needs
            with contextlib.suppress(FileNotFoundError):
                final.rename(unit.folder.with_name(f"{final.name}.old"))
        try:
            unit.folder.rename(final)
        except OSError:
            if not read(final, unit.wanted):  # otherwise another build was faster
                raise
    return final, contents, reason


def _refuse_unread(builder: Builder, unit: Unit, files: Sequence[str]) -> None:
    """Refuses macros of the config that no source reads.

    Raises:
        ManifestError: with the line that declares them.
    """
    if unread := builder.inputs.unread(unit.variant.config, files):
        root = Path(builder.suite.root)
        file, declared, _ = lines.declaration(root, (MANIFEST, *builder.suite.manifests), unit.variant.name)
        message = (
            f"expected macros that its sources read, found {', '.join(unread)}, "
            "which no source reads\n    hint: correct the name, or remove it"
        )
        name = file.relative_to(root).as_posix()
        raise ManifestError(
            str(root / MANIFEST), [lines.located(name, file.read_bytes(), f"{declared}.config", message)]
        )


def listed(folder: Path) -> dict[str, Any]:
    """What a folder lists as its contents, whether or not its files are unchanged; empty if it lists nothing."""
    contents: dict[str, Any] = cache.recall(folder, _MANIFEST, folder.name) or {}
    return contents


def read(folder: Path, wanted: Iterable[str]) -> dict[str, Any]:
    """A folder's contents, if this user or root made it and its files are unchanged; else empty."""
    contents = listed(folder)
    try:
        digests = contents["files"]
        complete = all(digests[name] for name in wanted) and digests.keys() >= {LOG, OBJECT, SASS}
        intact = complete and all(file_hash(folder / name) == digest for name, digest in digests.items())
        return contents if intact and cache.trusted(folder) else {}
    except (OSError, LookupError):
        return {}


def may_launch_more(artifact: Artifact) -> bool:
    """Whether its host code, whose plan is declared, has launches that no plan names."""
    return bool(listed(Path(artifact.plan_library or "").parent).get("more"))


def artifact(unit: Unit, folder: Path, contents: Mapping[str, Any], seconds: float | None = None) -> Artifact:
    def path(name: str) -> str | None:
        # A build for another GPU may have made a plan and an operator for this arch too.
        wanted = name in unit.wanted or name not in (PLAN, OPERATOR)
        return f"{folder}{os.sep}{name}" if wanted and contents["files"].get(name) else None

    return Artifact(
        variant=unit.variant.name,
        arch=unit.arch,
        status="ok",
        source_hash=contents["source_hash"],
        code=contents["code"],
        host=contents["host"],
        cxx=contents["cxx"],
        flags=unit.flags,
        cubin=path(CUBIN),
        log=path(LOG),
        library=path(OPERATOR),
        plan_library=path(PLAN),
        seconds=seconds,
        cached=seconds is None,
    )
