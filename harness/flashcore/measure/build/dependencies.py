"""The inputs of an object, as the key under which it is built and the hash by which records compare it.

The compiler lists the files that it read (``-MD``); their content decides, never their time. An object is also compiled
again if a new file would be found before one of those, if the environment changes the compiler's work, or if a program
that compiles was replaced. The *closure* hashes the text of the user's files without comments and blanks, and the
flags: it holds no path and nothing of the toolkit, so it compares between machines.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import UsageError
from flashcore.model import cache

#: Environment variables that add flags to nvcc, folders of headers, and others that change the compiled code.
_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "PTXAS_FLAGS", "CUDAFE_FLAGS", "NVVM_FLAGS")
_FOLDERS = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
_OTHERS = ("NVCC_CCBIN", "GCC_EXEC_PREFIX", "COMPILER_PATH", "INCLUDES", "SYSTEM_INCLUDES", "SOURCE_DATE_EPOCH")
#: Make the compiler write unwanted files.
STRAY = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
_SYSTEM = r"/usr/(include|lib)/|.*/(include/c\+\+|lib/gcc|sysroot)/"
_NAMED = rb'(["<])([^"<>\n]{1,300})[">]'
# nvcc passes its arguments to a shell within double quotes, and removes the quotes from what -I names.
_UNSAFE = r"""[\x00-\x1f\x7f$`"\\]|^-I.*'"""
_SAMPLED = 4 << 20  # of a program larger than this, 64 KB of each MB are read
_STRING = rb'"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\''
# One that is not closed extends to the end: it is read once.
_COMMENT = rb'(R"([^()\\\s]{0,16})\((?s:.*?\)\2"|.*)|' + _STRING + rb")|//[^\n]*|/\*(?s:.*?\*/|.*)"
_BLANKS = rb"(" + _STRING + rb")|\s+"
_DEFINES = rb"(?:# *ifndef (\w+)\s+)?# *define (?(1)\1\b|\w+)"
_TOKEN = _STRING + rb"""|[\w.]+|[(){}\[\],;?~]|[^\w.\s"'(){}\[\],;?~]+|["']"""


def refuse_unsafe(texts: Iterable[str]) -> None:
    """Raises:
    UsageError: nvcc would misread a flag or path, or run a command that it holds.
    """
    for text in texts:
        if unsafe := re.search(_UNSAFE, text):
            raise UsageError(
                f"{text!r}: expected a path or flag that nvcc takes unchanged, found {unsafe[0][-1]!r} in it\n"
                '  hint: leave out $, `, ", \\ and line breaks'
            )


def digest(value: object) -> str:
    """The hash of a value as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def plain_text(text: bytes) -> bytes:
    """A source without comments, and without blanks except those that separate two words or belong to a directive."""
    text = re.sub(_COMMENT, lambda m: m[1] or b" ", text.replace(b"\\\n", b""))
    parts: list[bytes] = []
    for line in map(bytes.strip, text.split(b"\n")):
        directive = line[:1] == b"#"
        parts += [re.sub(_BLANKS, lambda m: m[1] or b" ", line) + b"\n"] if directive else re.findall(_TOKEN, line)
    return b" ".join(parts)


def parsed(rule: str) -> list[str]:
    """The files that a make rule depends on."""
    files = re.split(r":\s", rule.replace("\\\n", " "), maxsplit=1)[-1]  # a blank in a name comes escaped
    return [re.sub(r"\\([ #\\])|\$(\$)", r"\1\2", f) for f in re.findall(r"(?:\\.|[^\s\\])+", files)]


class Tools(NamedTuple):
    """The programs that compile, the root of their toolkit, whose headers are not the user's, and their releases."""

    programs: Sequence[Path]
    toolkit: Path
    release: str


class Inputs:
    """All possible inputs of a suite's objects; each file is read once.

    Args:
        root: the suite's folder.
        folder: the suite's build folder.
        include: the user's and the harness's folders of headers.
    """

    def __init__(self, root: str, folder: Path, tools: Tools, include: Iterable[Path]) -> None:
        self._folder, self._toolkit = folder, f"{os.path.realpath(tools.toolkit)}{os.sep}"
        environment = {n: os.environ[n] for n in (*_FLAGS, *_FOLDERS, *_OTHERS) if os.environ.get(n)}
        self._flags = [environment[n] for n in _FLAGS if n in environment]
        folders = [f for n in _FOLDERS if n in environment for f in environment[n].split(os.pathsep)]
        folders += re.findall(r"-(?:I|isystem)[ =]?(\S+)", " ".join(self._flags))
        more = [os.path.realpath(os.path.join(root, f)) for f in folders if f]
        self._declared = [os.path.realpath(f) for f in (root, *map(str, include))]  # the same on every machine
        self._root = self._declared[0]
        self._include = [*self._declared[1:], *(f for f in more if not re.match(_SYSTEM, f + os.sep))]
        self._headers = [self._below(f) for f in self._include]
        self._system = functools.cache(self._system_content)
        self._file = functools.cache(self._file_content)
        programs = [self._content(tools.programs, "tools"), tools.release, [str(t) for t in tools.programs]]
        self.tools = json.dumps([*programs, environment])

    def question(self, *parts: object) -> str:
        """The hash of the inputs that precede the compiler's list of files."""
        return digest([self.tools, parts])

    def keys(self, name: str, question: str) -> list[str]:
        """The keys that an object may have, one for each set of files that earlier builds recorded."""
        return [self._key(question, entry) for entry in self._entries(name, question)]

    def learn(self, name: str, question: str, rule: str, generated: Path, since: int) -> tuple[str, list[str]]:
        """Records the files that the compiler read; returns the key, and the user's files.

        Args:
            generated: the folder of generated headers, whose content is part of the question.
            since: when compiling began, in nanoseconds.

        Raises:
            UsageError: a file changed meanwhile, so it is unknown which version the compiler read.
        """
        generated_files = os.path.realpath(generated) + os.sep
        users: list[str] = []
        system: list[str] = []
        # Relative paths: a copy of the suite in another folder finds the same objects.
        for file in sorted({f.removeprefix(self._root + os.sep) for f in parsed(rule)}):
            path = os.path.join(self._root, file)
            real = os.path.realpath(path)
            if not self._is_users(real):
                system.append(path)
            elif not real.startswith(generated_files):
                users.append(file)
        for file in users:
            path = os.path.join(self._root, file)
            if not os.path.exists(path) or os.stat(path).st_ctime_ns > since:
                raise UsageError(f"{file}: changed while it was compiled\n  hint: build again")
        listed = json.dumps(system).encode()
        entry = {"files": users, "system": hashlib.sha256(listed).hexdigest()[:16]}
        cache.write(self._folder / f"system-{entry['system']}.json", listed)
        entries = [entry, *(e for e in self._entries(name, question) if e != entry)]
        cache.write(self._folder / f"{name}-{question[:16]}.json", json.dumps(entries[:4]).encode())
        return self._key(question, entry), users

    def closure(self, parts: object, files: Iterable[str], generated: Mapping[str, str]) -> str:
        """The hash of the user's text and the flags; the same on every machine."""
        texts = set()
        for real in (os.path.realpath(os.path.join(self._root, file)) for file in files):
            below = next((f for f in self._declared if real.startswith(f + os.sep)), os.path.dirname(real))
            texts.add((os.path.relpath(real, below), hashlib.sha256(plain_text(Path(real).read_bytes())).hexdigest()))
        return digest([parts, self._flags, sorted(texts), sorted(generated.items())])

    def unread(self, names: Iterable[str], files: Iterable[str]) -> list[str]:
        """The macros that none of the files reads. Defining one, also where it is not yet, does not read it."""
        texts = b"\n".join(plain_text(Path(self._root, file).read_bytes()) for file in files)
        words = {*re.findall(rb"\w+", re.sub(_STRING, b"", re.sub(_DEFINES, b"", texts)))}
        return [name for name in names if name.encode() not in words]

    def _entries(self, name: str, question: str) -> list[dict[str, Any]]:
        try:
            entries = json.loads((self._folder / f"{name}-{question[:16]}.json").read_bytes())
            return [e for e in entries if isinstance(e["files"], list) and isinstance(e["system"], str)]
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def _key(self, question: str, entry: Mapping[str, Any]) -> str:
        content, header_names = self._system(entry["system"])
        key = hashlib.sha256(f"{question}{content}".encode())
        for file in entry["files"]:
            text, included = self._file(os.path.join(self._root, file))
            key.update(f"\0{file}\0{text}".encode())
            header_names |= included
        for paths in self._headers:  # a new header of such a name would be read instead of another
            key.update(json.dumps([paths[n] for n in sorted(header_names & paths.keys())]).encode())
        return key.hexdigest()

    def _is_users(self, real: str) -> bool:
        inside = any(real.startswith(f + os.sep) for f in self._include)
        return not real.startswith(self._toolkit) and (inside or not re.match(_SYSTEM, real))

    def _file_content(self, path: str) -> tuple[str, frozenset[str]]:
        """The hash of a user's file and of which headers that it includes in quotes lie in its folder; the names of all
        headers that it includes."""
        try:
            text = Path(path).read_bytes()
        except OSError:
            return "absent", frozenset()
        headers = {(m[1], m[2].decode(errors="replace")) for m in re.finditer(_NAMED, text)}
        folder = os.path.dirname(path)
        local = sorted(n for quote, n in headers if quote == b'"' and os.path.isfile(os.path.join(folder, n)))
        return f"{hashlib.sha256(text).hexdigest()} {local}", frozenset(os.path.basename(n) for _, n in headers)

    def _system_content(self, which: str) -> tuple[str, frozenset[str]]:
        try:
            paths = json.loads((self._folder / f"system-{which}.json").read_bytes())
            return self._content([Path(p) for p in paths], which), frozenset(map(os.path.basename, paths))
        except (OSError, ValueError, TypeError):
            return "absent", frozenset()

    def _content(self, paths: Sequence[Path], name: str) -> str:
        """The hash of files that seldom change: they are read again when their stamps change."""
        stamp = hashlib.sha256(cache.stamp(paths).encode()).hexdigest()
        content = cache.recall(self._folder, f"content-{name}", stamp)
        if not isinstance(content, str):
            content = _contents(tuple(paths), stamp)
            cache.keep(self._folder, f"content-{name}", stamp, content)
        return content

    def _below(self, folder: str) -> dict[str, list[str]]:
        """File name → the paths below ``folder`` that end in it, without the build folder and hidden ones."""
        paths: dict[str, list[str]] = {}
        built = os.path.realpath(self._folder.parent)
        for place, folders, files in os.walk(folder):
            folders[:] = sorted(f for f in folders if f[0] != "." and os.path.join(place, f) != built)
            for name in files:
                paths.setdefault(name, []).append(os.path.relpath(os.path.join(place, name), folder))
        return paths


@functools.cache
def _contents(paths: tuple[Path, ...], stamp: str) -> str:
    content = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            content.update(f"{size} ".encode())
            for at in range(0, size, 1 << 20):
                stream.seek(at)
                content.update(stream.read(1 << 16 if size > _SAMPLED else 1 << 20))
    return content.hexdigest()
