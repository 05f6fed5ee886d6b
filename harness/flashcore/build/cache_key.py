"""Hashes an object's inputs: a key for the build cache, and a source hash for comparing records.

The compiler lists the files that it read (``-MD``); their content decides, never their time stamps. An object is also
recompiled if a file appears that would be found in place of one of those, or that ``__has_include`` asks for, if the
environment changes the compilation, or if a compiler program was replaced. An object that may depend on unlisted files
is recompiled in every build.

The source hash covers the user's files, without comments and blanks, and the flags. It contains no paths
and no toolkit files, so it compares between machines.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine import toolchain
from flashcore.model import cache
from flashcore.model.files import file_hash, text_hash

#: Environment variables that make the compiler write unwanted files.
STRAY = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
_SYSTEM = r"/usr/(include|lib)/|.*/(include/c\+\+|lib/gcc|sysroot)/"
_INCLUDE_OPTION = r"-(?:I|isystem|-?include-path|-?system-include)[ =]?(\S+)"
_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE: Linux's file time stamps lag by up to its resolution
_STRING = rb'"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\''
# An unclosed comment or raw string extends to the end of the file.
_COMMENT = rb'(R"([^()\\\s]{0,16})\((?s:.*?\)\2"|.*)|' + _STRING + rb")|//[^\n]*|/\*(?s:.*?\*/|.*)"
_BLANKS = rb"(" + _STRING + rb")|\s+"
_DEFINES = rb"(?:# *ifndef (\w+)\s+)?# *define (?(1)\1\b|\w+)"
_PROBE = rb'__has_(?:include|embed)\w* *\( *[<"]([^">]+)'
#: Patterns, in text without comments, of dependencies that the compiler does not list: files, or the clock.
_UNLISTED = {
    "a computed __has_include": rb'__has_(?:include|embed)\w*+(?! *\( *[<"])',
    "#embed": rb"(?:#|%:) *embed\b",
    ".incbin or .include of an assembler": rb"\.(?:incbin|include)\b",
    "the time of compilation": rb"__(?:TIME|DATE|TIMESTAMP)__",
}
_TOKEN = _STRING + rb"""|[\w.]+|[(){}\[\],;?~]|[^\w.\s"'(){}\[\],;?~]+|["']"""


def digest(value: object) -> str:
    """The hash of a value as JSON."""
    return text_hash(json.dumps(value))


def plain_text(text: bytes) -> bytes:
    """A source without comments, and with blanks only between tokens and in directives."""
    text = re.sub(_COMMENT, lambda m: m[1] or b" ", text.replace(b"\\\n", b""))
    parts: list[bytes] = []
    for line in map(bytes.strip, text.split(b"\n")):
        directive = line[:1] == b"#"
        parts += [re.sub(_BLANKS, lambda m: m[1] or b" ", line) + b"\n"] if directive else re.findall(_TOKEN, line)
    return b" ".join(parts)


def unlisted(text: bytes, flags: str) -> str:
    """A construct that makes the compiler depend on unlisted files; empty if there is none.

    Args:
        text: the user's files, without comments.
        flags: the compiler's flags.
    """
    if re.search(r"(?:^|[\s=,\"'])(?:@|-?-optf|--options-file)", flags):
        return "a file of options"
    # Join adjacent strings, and drop tests whether __has_include exists, which read no file.
    text = re.sub(rb"(?:ifn?def|defined *\(?) *__has_\w+", b"", text.replace(b'" "', b""))
    return next((reason for reason, pattern in _UNLISTED.items() if re.search(pattern, text)), "")


def parsed(rule: str) -> list[str]:
    """The files that make rules depend on.

    Raises:
        FlashcoreError: the rule is truncated, as on a full disk.
    """
    if not rule.endswith("\n") or rule.endswith("\\\n"):
        raise FlashcoreError("the compiler's list of files is truncated: no space left on the disk?")
    # Blanks in names are escaped.
    files = [re.split(r":\s", line, maxsplit=1)[-1] for line in rule.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\\([ #\\])|\$(\$)", r"\1\2", f) for f in re.findall(r"(?:\\.|[^\s\\])+", "\n".join(files))]


class CompilerTools(NamedTuple):
    """The compiler programs, their toolkit's root, whose headers are not the user's, and their releases."""

    programs: Sequence[Path]
    toolkit: Path
    release: str


class Inputs:
    """All possible inputs of a suite's objects; reads each file once.

    Args:
        root: the suite's folder.
        folder: the suite's build folder.
        include: the user's and the harness's header folders.
    """

    def __init__(self, root: str, folder: Path, tools: CompilerTools, include: Iterable[Path]) -> None:
        self._since = time.time_ns()
        time.sleep(time.clock_getres(_FILE_CLOCK))  # so that any later change has a later time stamp
        self._folder, self._toolkit = folder, f"{os.path.realpath(tools.toolkit)}{os.sep}"
        named = (*toolchain.FLAG_VARIABLES, *toolchain.FOLDER_VARIABLES, *toolchain.OTHER_VARIABLES)
        environment = {n: os.environ[n] for n in named if os.environ.get(n)}
        self._flags = [environment[n] for n in toolchain.FLAG_VARIABLES if n in environment]
        folders = [f for n in toolchain.FOLDER_VARIABLES if n in environment for f in environment[n].split(os.pathsep)]
        for names in re.findall(_INCLUDE_OPTION, " ".join(self._flags)):
            folders += (name.removeprefix("-I") for name in names.split(","))
        more = [os.path.realpath(os.path.join(root, f)) for f in folders]  # an empty one is the suite's
        self._declared = [os.path.realpath(f) for f in (root, *map(str, include))]  # the same on every machine
        self._root = self._declared[0]
        self._include = [*self._declared[1:], *(f for f in more if not re.match(_SYSTEM, f + os.sep))]
        self._real, self._names = functools.cache(os.path.realpath), functools.cache(_names)
        self._system, self._appeared = functools.cache(self._system_content), functools.cache(self._appearing)
        self._file = functools.cache(_hash)
        self._plain = functools.cache(lambda file: plain_text(Path(self._root, file).read_bytes()))
        self._changed = functools.cache(self._last_change)
        words = re.split(r"[\s=,@\"']+", " ".join(self._flags))
        paths = [p for w in words if os.path.isfile(p := os.path.join(root, w)) or (p := shutil.which(w) or "")]
        self._programs = [*tools.programs, *map(Path, paths)]
        programs = [self.content(self._programs, "tools"), tools.release, [str(t) for t in tools.programs]]
        self.tools = json.dumps([*programs, environment])

    def question(self, *parts: object) -> str:
        """The hash of the inputs that precede the compiler's list of files."""
        return digest([self.tools, parts])

    def keys(self, name: str, question: str) -> list[str]:
        """The possible keys of an object, one for each list of files that earlier builds recorded."""
        return [self._key(question, entry) for entry in self._entries(name, question)]

    def learn(
        self,
        name: str,
        question: str,
        rule: str,
        generated: Path,
        flags: Sequence[str],
        packages: Sequence[Path] = (),
    ) -> tuple[str, list[str], str]:
        """Records the files that the compiler read; returns the key, the user's files, and a construct that depends on
        unlisted files, or empty. With such a construct, no later build looks up the key.

        Args:
            generated: the folder of generated headers, whose content is part of the question.
            packages: folders of headers that are not the user's.
        """
        generated_files = os.path.realpath(generated) + os.sep
        installed = tuple(os.path.realpath(folder) + os.sep for folder in packages)
        users: list[str] = []
        system: list[str] = []
        # Relative paths, so that a copy of the suite in another folder has the same keys.
        for file in sorted({f.removeprefix(self._root + os.sep) for f in parsed(rule)}):
            path = os.path.join(self._root, file)
            real = self._real(path)
            if not self._is_users(real) or real.startswith(installed):
                system.append(path)
            elif not real.startswith(generated_files):
                users.append(file)
        text = b"\n".join(map(self._plain, users))
        which = digest(system)[:16]
        cache.keep(self._folder, f"system-{which}", which, system)
        probes = sorted({probe.decode(errors="surrogateescape") for probe in re.findall(_PROBE, text)})
        entry = {"files": users, "system": which, "probes": probes}
        key = self._key(question, entry)
        if reason := unlisted(text, " ".join((*flags, *self._flags))):
            return f"once-{key}", users, reason
        entries = [entry, *(e for e in self._entries(name, question) if e != entry)]
        cache.keep(self._folder, f"{name}-{question[:16]}", question, entries[:4])
        return key, users, ""

    def refuse_changed(self, rule: str, generated: Path) -> None:
        """Refuses a compilation during which an input changed.

        Raises:
            UsageError: a file or program, or a link or folder on its path, changed since this object was made, so it is
                unknown which version was read.
        """
        generated_files = os.path.realpath(generated) + os.sep
        for file in (*parsed(rule), *map(str, self._programs)):
            path = os.path.join(self._root, file)
            if not path.startswith(generated_files) and self._changed(path) > self._since:
                raise UsageError(f"{file}: changed during compilation\n  hint: build again")

    def source_hash(self, parts: object, files: Iterable[str], generated: Mapping[str, str]) -> str:
        """The source hash: of the user's text and the flags; the same on every machine."""
        texts = set()
        for file in files:
            real = os.path.realpath(os.path.join(self._root, file))
            below = next((f for f in self._declared if real.startswith(f + os.sep)), os.path.dirname(real))
            texts.add((os.path.relpath(real, below), hashlib.sha256(self._plain(file)).hexdigest()))
        return digest([parts, self._flags, sorted(texts), sorted(generated.items())])

    def unread(self, names: Iterable[str], files: Iterable[str]) -> list[str]:
        """The macros that no file reads. ``#define`` and ``#ifndef`` before it are not reads."""
        texts = b"\n".join(map(self._plain, files))
        words = {*re.findall(rb"\w+", re.sub(_STRING, b"", re.sub(_DEFINES, b"", texts)))}
        return [name for name in names if name.encode() not in words]

    def _entries(self, name: str, question: str) -> list[dict[str, Any]]:
        return cache.recall(self._folder, f"{name}-{question[:16]}", question) or []

    def _key(self, question: str, entry: Mapping[str, Any]) -> str:
        content, system = self._system(entry["system"])
        paths = [os.path.join(self._root, file) for file in entry["files"]]
        folders = (*dict.fromkeys([*map(os.path.dirname, paths), *self._include]),)
        key = hashlib.sha256(f"{question}{content}".encode())
        for file, path in zip(entry["files"], paths, strict=True):
            key.update(f"\0{file}\0{self._file(path)}".encode())
        appeared = [self._appeared(folders, tuple(read)) for read in (paths, system)]
        probed = folders
        if entry["probes"]:  # also below links, or where the system's headers lie
            parents = {str(parent) for path in system for parent in Path(os.path.normpath(path)).parents}
            probed = (*folders, *sorted({"/usr/local/include", *parents}))
        present = [os.path.isfile(os.path.join(folder, name)) for name in entry["probes"] for folder in probed]
        key.update(json.dumps([appeared, entry["probes"], present]).encode())
        return key.hexdigest()

    def _appearing(self, folders: Sequence[str], paths: Sequence[str]) -> list[str]:
        """The files of the folders that an ``#include`` which found one of the paths may find: whatever it names, the
        path ends with it."""
        files = set[str]()
        for path in paths:
            parts = path.split(os.sep)
            for i, first in enumerate(parts):
                places = (os.path.join(f, *parts[i:]) for f in folders if first == ".." or first in self._names(f))
                files.update(filter(os.path.isfile, places))
        return sorted(files - {*paths})

    def _is_users(self, real: str) -> bool:
        inside = any(real.startswith(f + os.sep) for f in self._include)
        return not real.startswith(self._toolkit) and (inside or not re.match(_SYSTEM, real))

    def _system_content(self, which: str) -> tuple[str, list[str]]:
        """The hash of the system files, and their paths."""
        paths = cache.recall(self._folder, f"system-{which}", which) or []
        try:
            return self.content([Path(p) for p in paths], which), paths
        except OSError:
            return "absent", []

    def _last_change(self, path: str) -> int:
        """When a file, or a link or folder on its path, was last replaced or written, in ns."""
        try:
            status = os.lstat(path)
        except OSError:
            return time.time_ns()
        folder = os.path.dirname(path)
        times = [0 if folder == path else self._changed(folder)]
        if stat.S_ISLNK(status.st_mode):
            times.append(self._changed(os.path.join(folder, os.readlink(path))))
        # Renaming a folder changes only its ctime; a new file in it changes ctime and mtime.
        if not stat.S_ISDIR(status.st_mode) or status.st_mtime_ns < self._since:
            times.append(status.st_ctime_ns)
        return max(times)

    def content(self, paths: Sequence[Path], name: str) -> str:
        """The hash of files that seldom change: they are read again only when their time stamps change."""
        stamp = text_hash(cache.stamp(paths))
        content = cache.recall(self._folder, f"content-{name}", stamp)
        if not isinstance(content, str):
            contents = " ".join(_content(path, cache.stamp([path])) for path in paths)
            content = text_hash(contents)
            cache.keep(self._folder, f"content-{name}", stamp, content)
        return content


def _names(folder: str) -> frozenset[str]:
    """The names in a folder; empty if it is none."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _hash(path: str) -> str:
    return file_hash(Path(path)) or "absent"


@functools.cache
def _content(path: Path, stamp: str) -> str:
    return file_hash(path)
