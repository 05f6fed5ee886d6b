"""What an object was made of, and whether making it again would use exactly the same.

The compiler says which files it read (``-MD``); their content decides, never their time. An object is also made again
if a new file would be found before one of those, if the environment changes what the compiler does, or if a program
that compiles was replaced. The text of the user's files without comments and blanks, and the flags,
are the *closure*: it holds no path and nothing of the toolkit, so it compares between machines.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model import cache

#: What the environment adds to nvcc's flags, and what else in it changes what is compiled.
_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "PTXAS_FLAGS", "CUDAFE_FLAGS", "NVVM_FLAGS")
_FOLDERS = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
_OTHERS = ("NVCC_CCBIN", "GCC_EXEC_PREFIX", "COMPILER_PATH", "INCLUDES", "SYSTEM_INCLUDES", "SOURCE_DATE_EPOCH")
#: Make the compiler write files that were not asked for.
STRAY = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
_SYSTEM = re.compile(r"/usr/(include|lib)/|.*/(include/c\+\+|lib/gcc|sysroot)/")
_NAMED = re.compile(rb'(["<])([^"<>\n]{1,300})[">]')
# nvcc passes its arguments to a shell within double quotes, and removes the quotes from what -I names.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f$`"\\]|^-I.*'""")
_SAMPLED = 4 << 20  # of a program larger than this, 64 KB of each MB are read
_STRING = rb'"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\''
# One that is not closed extends to the end: it is read once.
_COMMENT = re.compile(
    rb'(R"([^()\\\s]{0,16})\((?s:.*?\)\2"|.*)|' + _STRING + rb")|//[^\n]*|/\*(?s:.*?\*/|.*)",
)
_BLANKS = re.compile(rb"(" + _STRING + rb")|\s+")
_TOKEN = re.compile(_STRING + rb"""|[\w.]+|[(){}\[\],;?~]|[^\w.\s"'(){}\[\],;?~]+|["']""")


def refuse_unsafe(texts: Iterable[str]) -> None:
    """Raises:
    UsageError: nvcc would misread a flag or path, or run a command that it holds.
    """
    for text in texts:
        if found := _UNSAFE.search(text):
            raise UsageError(
                f"{text!r}: expected a path or flag that nvcc takes unchanged, found {found[0][-1]!r} in it\n"
                '  hint: leave out $, `, ", \\ and line breaks'
            )


def plain_text(text: bytes) -> bytes:
    """A source without comments, and without blanks except those that separate two words or belong to a directive."""
    text = _COMMENT.sub(lambda m: m[1] or b" ", text.replace(b"\\\n", b""))
    parts: list[bytes] = []
    for line in map(bytes.strip, text.split(b"\n")):
        directive = line[:1] == b"#"
        parts += [_BLANKS.sub(lambda m: m[1] or b" ", line) + b"\n"] if directive else _TOKEN.findall(line)
    return b" ".join(parts)


def parsed(rule: str) -> list[str]:
    """The files that a make rule depends on."""
    files = re.split(r":\s", rule.replace("\\\n", " "), maxsplit=1)[-1]  # a blank in a name comes escaped
    return [re.sub(r"\\([ #\\])|\$(\$)", r"\1\2", f) for f in re.findall(r"(?:\\.|[^\s\\])+", files)]


class Inputs:
    """What can go into the objects of a suite; each file is read once.

    Args:
        folder: the suite's build folder.
        tools: the programs that compile; ``release`` is what else is said of them.
        toolkit: the root of the toolkit, whose headers are not the user's.
        include: the folders of the user and of the harness where headers are looked for.
    """

    def __init__(
        self, root: str, folder: Path, tools: Sequence[Path], toolkit: Path, include: Iterable[Path], release: str
    ) -> None:
        self._folder, self._toolkit = folder, f"{os.path.realpath(toolkit)}{os.sep}"
        given = {n: os.environ[n] for n in (*_FLAGS, *_FOLDERS, *_OTHERS) if os.environ.get(n)}
        self._flags = [given[n] for n in _FLAGS if n in given]
        found = [f for n in _FOLDERS if n in given for f in given[n].split(os.pathsep)]
        found += re.findall(r"-(?:I|isystem)[ =]?(\S+)", " ".join(self._flags))
        more = [os.path.realpath(os.path.join(root, f)) for f in found if f]
        self._known = [os.path.realpath(f) for f in (root, *map(str, include))]  # the same on every machine
        self._root = self._known[0]
        self._include = [*self._known[1:], *(f for f in more if not _SYSTEM.match(f + os.sep))]
        self._names = [self._below(f) for f in self._include]
        self._system = functools.cache(self._system_content)
        self._file = functools.cache(self._file_content)
        self.tools = json.dumps([self._content(tools, "tools"), release, [str(t) for t in tools], given])

    def question(self, *parts: object) -> str:
        """The hash of all that is known before the compiler lists the files that it reads."""
        return hashlib.sha256(json.dumps([self.tools, parts]).encode()).hexdigest()

    def keys(self, name: str, question: str) -> list[str]:
        """The keys that an object may have, for each known set of files that it is made of."""
        return [self._key(question, entry) for entry in self._entries(name, question)]

    def learn(self, name: str, question: str, rule: str, generated: Path, since: int) -> tuple[str, list[str]]:
        """Records what the compiler read; returns the key, and the user's files.

        Args:
            generated: the folder of generated headers, whose content is part of the question.
            since: when compiling began, in nanoseconds.

        Raises:
            UsageError: a file changed meanwhile, so it is unknown which version the compiler read.
        """
        own: list[str] = []
        system: list[str] = []
        # A suite that lies elsewhere finds what was built of the same files.
        for file in sorted({f.removeprefix(self._root + os.sep) for f in parsed(rule)}):
            path = os.path.join(self._root, file)
            real = os.path.realpath(path)
            if self._is_own(real):
                own += [] if real.startswith(os.path.realpath(generated) + os.sep) else [file]
            else:
                system.append(path)
        for file in own:
            path = os.path.join(self._root, file)
            if not os.path.exists(path) or os.stat(path).st_ctime_ns > since:
                raise UsageError(f"{file}: changed while it was compiled\n  hint: build again")
        listed = json.dumps(system).encode()
        entry = {"files": own, "system": hashlib.sha256(listed).hexdigest()[:16]}
        cache.write(self._folder / f"system-{entry['system']}.json", listed)
        known = [entry, *(e for e in self._entries(name, question) if e != entry)]
        cache.write(self._folder / f"{name}-{question[:16]}.json", json.dumps(known[:4]).encode())
        return self._key(question, entry), own

    def closure(self, parts: object, files: Iterable[str], generated: Mapping[str, str]) -> str:
        """Of the user's text and the flags; the same on every machine."""
        texts = set()
        for real in (os.path.realpath(os.path.join(self._root, file)) for file in files):
            below = next((f for f in self._known if real.startswith(f + os.sep)), os.path.dirname(real))
            texts.add((os.path.relpath(real, below), hashlib.sha256(plain_text(Path(real).read_bytes())).hexdigest()))
        whole = [parts, self._flags, sorted(texts), sorted(generated.items())]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    def _entries(self, name: str, question: str) -> list[dict[str, Any]]:
        try:
            known = json.loads((self._folder / f"{name}-{question[:16]}.json").read_bytes())
            return [e for e in known if isinstance(e["files"], list) and isinstance(e["system"], str)]
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def _key(self, question: str, entry: Mapping[str, Any]) -> str:
        content, named = self._system(entry["system"])
        digest = hashlib.sha256(f"{question}{content}".encode())
        for file in entry["files"]:
            text, words = self._file(os.path.join(self._root, file))
            digest.update(f"\0{file}\0{text}".encode())
            named = named | words
        for names in self._names:  # a header of such a name, appearing there, would be read instead of another
            digest.update(json.dumps([names[n] for n in sorted(named & names.keys())]).encode())
        return digest.hexdigest()

    def _is_own(self, real: str) -> bool:
        inside = any(real.startswith(f + os.sep) for f in self._include)
        return not real.startswith(self._toolkit) and (inside or not _SYSTEM.match(real))

    def _file_content(self, path: str) -> tuple[str, frozenset[str]]:
        """The hash of a user's file, with which of the headers that it names in quotes lie beside it; and all names."""
        try:
            text = Path(path).read_bytes()
        except OSError:
            return "absent", frozenset()
        named = {(m[1], m[2].decode(errors="replace")) for m in _NAMED.finditer(text)}
        beside = sorted(n for q, n in named if q == b'"' and os.path.isfile(os.path.join(os.path.dirname(path), n)))
        return f"{hashlib.sha256(text).hexdigest()} {beside}", frozenset(os.path.basename(n) for _, n in named)

    def _system_content(self, which: str) -> tuple[str, frozenset[str]]:
        try:
            paths = json.loads((self._folder / f"system-{which}.json").read_bytes())
            return self._content([Path(p) for p in paths], which), frozenset(map(os.path.basename, paths))
        except (OSError, ValueError, TypeError):
            return "absent", frozenset()

    def _content(self, paths: Sequence[Path], name: str) -> str:
        """The hash of files that seldom change: they are read again when their stamps change."""
        stamp = hashlib.sha256(cache.stamp(paths).encode()).hexdigest()
        known = cache.recall(self._folder, f"content-{name}", stamp)
        if not isinstance(known, str):
            known = _contents(tuple(paths), stamp)
            cache.keep(self._folder, f"content-{name}", stamp, known)
        return known

    def _below(self, folder: str) -> dict[str, list[str]]:
        """File name → the paths below ``folder`` that end in it; what is built, and hidden folders, left out."""
        found: dict[str, list[str]] = {}
        built = os.path.realpath(self._folder.parent)
        for place, folders, files in os.walk(folder):
            folders[:] = sorted(f for f in folders if f[0] != "." and os.path.join(place, f) != built)
            for name in files:
                found.setdefault(name, []).append(os.path.relpath(os.path.join(place, name), folder))
        return found


@functools.cache
def _contents(paths: tuple[Path, ...], stamp: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            digest.update(f"{size} ".encode())
            for at in range(0, size, 1 << 20):
                stream.seek(at)
                digest.update(stream.read(1 << 16 if size > _SAMPLED else 1 << 20))
    return digest.hexdigest()
