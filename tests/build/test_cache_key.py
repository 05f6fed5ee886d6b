"""An object's inputs: content, names that could appear, environment, programs; never a file's time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.build.cache_key import CompilerTools, Inputs, parsed, plain_text, unlisted
from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine import toolchain

# --- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int  x = f(a,b);", "int x = f( a, b ); // why", True),
        ("int x; /* a\nb */ int y;", "int x;\n\n  int y;", True),
        ("#define F(x)  x", "# define F(x) x", False),  # directives keep their blanks
        ("#define F(x) x", "#define F (x) x", False),
        ("#define F(x)  x // why", "#define F(x) x", True),
        ("#define A 1\nB", "#define A 1 B", False),
        ("a + +b", "a ++b", False),
        ("int x", "intx", False),
        ('"a  b"', '"a b"', False),
        ('#define S "a  b"', '#define S "a b"', False),
        ('"// no comment"', '"', False),
        ('"/*" x "*/"', '"/*" y "*/"', False),
        ("1'000 // '", "1'000", True),
        ("'\"' // x", "'\"'", True),
        ("2 * scale", "scale", False),
        ("a \\\nb", "a b", True),
        ('R"(// kept)"', 'R"()"', False),
        ("// a \\\n still\nx", "x", True),
    ],
)
def test_text_without_comments_and_blanks(one: str, other: str, same: bool) -> None:
    assert (plain_text(one.encode()) == plain_text(other.encode())) is same


def test_a_long_line_takes_no_time() -> None:
    # Quadratic work would take minutes.
    for text in (
        b"/* " * 100_000,
        b'"' * 300_000,
        b"'" * 299_999,
        b'R"(' * 100_000,
        b" " * 300_000 + b"x",
        b"a\\" * 99_999,
    ):
        plain_text(text)


def test_a_make_rule() -> None:
    rule = "out.cubin: \\\n  /suite/a\\ b.cu include/x.cuh \\\n /usr/include/stdio.h /odd/\\#1/$$x.h\n"
    assert parsed(rule) == ["/suite/a b.cu", "include/x.cuh", "/usr/include/stdio.h", "/odd/#1/$x.h"]
    assert parsed("a:\\ b/out.o : c:d.h\n") == ["c:d.h"]
    for cut in ("", rule[:-3], "out.o : a.cu \\\n"):
        with pytest.raises(FlashcoreError, match="list of files is truncated"):
            parsed(cut)


# --- the key ------------------------------------------------------------------------------------


class Place:
    """A suite of one source and one header, and what a compiler would say that it read."""

    def __init__(self, root: Path) -> None:
        self.root, self.build = root / "suite", root / "build"
        for folder in ("include", "early", "toolkit/include"):
            (self.root / folder).mkdir(parents=True)
        self.write(
            "s.cu", '#define NAME <x.h>\n#include NAME\n#include "own.h"\n#if __has_include(<maybe.h>)\n#endif\n'
        )
        self.write("include/x.h", "int x;\n")
        self.write("own.h", "int own;\n")
        self.write("toolkit/include/cuda_fp16.h", "half\n")
        self.write("toolkit/nvcc", "program\n")

    def write(self, name: str, text: str) -> None:
        """A file, with the times that it had before if it was there."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        recorded = path.stat() if path.exists() else None
        path.write_text(text, encoding="utf-8")
        if recorded:
            os.utime(path, ns=(recorded.st_atime_ns, recorded.st_mtime_ns))

    def inputs(self) -> Inputs:
        """As the next process would find them."""
        time.sleep(0.02)  # the clock of files is coarser than that of the process
        include = [self.root / "early", self.root / "include"]
        tools = CompilerTools([self.root / "toolkit/nvcc"], self.root / "toolkit", "13.0")
        return Inputs(str(self.root), self.build, tools, include)

    def built(self) -> str:
        """Compiles; gives the key."""
        inputs = self.inputs()
        rule = f"s.o: {self.root}/s.cu include/x.h {self.root}/own.h {self.root}/toolkit/include/cuda_fp16.h\n"
        return self.learned(inputs, rule)

    def learned(self, inputs: Inputs, rule: str) -> str:
        """Ends a compilation; gives the key."""
        key = inputs.learn("v", inputs.question("flags"), rule, self.build / "generated", [])[0]
        inputs.refuse_changed(rule, self.build / "generated")
        return key

    def recorded_keys(self) -> list[str]:
        """The recorded dependencies of the present key."""
        inputs = self.inputs()
        return inputs.keys("v", inputs.question("flags"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A suite that was just compiled, with nothing of the compiler's in the environment."""
    for name in toolchain.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return Place(tmp_path)


def test_nothing_changed_and_a_touched_file(place: Place) -> None:
    key = place.built()
    assert place.recorded_keys() == [key]
    for path in place.root.rglob("*"):
        os.utime(path)
    assert place.recorded_keys() == [key]


CHANGES: dict[str, Callable[[Place], None]] = {
    "a header that only a macro names": lambda p: p.write("include/x.h", "int y;\n"),
    "a header beside the source": lambda p: p.write("own.h", "int ow2;\n"),
    "the source": lambda p: p.write("s.cu", "#include <y.h>\n"),
    "a header that is gone": lambda p: (p.root / "own.h").unlink(),
    "a header of the toolkit, its times as they were": lambda p: p.write("toolkit/include/cuda_fp16.h", "fahl\n"),
    "a wrapper edited in place": lambda p: p.write("toolkit/nvcc", "PROGRAM\n"),
    "a header that shadows another": lambda p: p.write("early/x.h", "int x;\n"),
    "a header that shadows the toolkit's": lambda p: p.write("include/cuda_fp16.h", ""),
    "a header that was asked for": lambda p: p.write("include/maybe.h", ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_makes_another_object(place: Place, change: str) -> None:
    key = place.built()
    CHANGES[change](place)
    assert key not in place.recorded_keys()
    if change != "a header that is gone":
        assert place.recorded_keys() != [key]


def test_a_name_in_quotes_that_appears_beside_the_file(place: Place) -> None:
    place.write("include/x.h", '#include "deep/own.h"\n')
    place.write("deep/own.h", "int own;\n")
    rule = f"s.o: {place.root}/s.cu include/x.h {place.root}/deep/own.h\n"
    key = place.learned(place.inputs(), rule)
    assert place.recorded_keys() == [key]
    place.write("include/deep/own.h", "int deep;\n")
    assert key not in place.recorded_keys()


@pytest.mark.parametrize(
    "name", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "NVCC_CCBIN", "PTXAS_FLAGS"]
)
def test_the_environment_asks_another_question(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place.built()
    monkeypatch.setenv(name, "-DX=1")
    assert place.recorded_keys() == []


def test_a_header_in_a_linked_folder(place: Place) -> None:
    place.write("s.cu", "#include <include/x.h>\n")
    key = place.built()
    (place.root / "early" / "include").symlink_to(place.root / "include")
    assert place.recorded_keys() != [key]


def test_a_header_whose_link_led_nowhere(place: Place) -> None:
    (place.root / "early" / "x.h").symlink_to(place.root / "later.h")
    key = place.built()
    assert place.recorded_keys() == [key]
    place.write("later.h", "int later;\n")
    assert place.recorded_keys() != [key]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPATH", "{}"),
        ("NVCC_PREPEND_FLAGS", "-I{}"),
        ("NVCC_PREPEND_FLAGS", "--include-path={}"),
        ("NVCC_APPEND_FLAGS", "-isystem /usr/include,{}"),
        ("NVCC_APPEND_FLAGS", "--system-include {}"),
        ("NVCC_APPEND_FLAGS", "-Xcompiler -I/usr/include,-I{}"),
    ],
)
def test_a_header_that_appears_in_a_folder_of_the_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    (tmp_path / "more").mkdir()
    monkeypatch.setenv(name, value.format(tmp_path / "more"))
    key = place.built()
    assert place.recorded_keys() == [key]
    (tmp_path / "more" / "x.h").write_text("", encoding="utf-8")
    assert place.recorded_keys() != [key]


def test_an_empty_folder_of_the_environment_is_the_suites(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", "/absent:")
    key = place.built()
    place.write("x.h", "int x;\n")
    assert place.recorded_keys() != [key]


def test_files_that_nobody_reads_change_nothing(place: Place) -> None:
    key = place.built()
    place.write("include/another.h", "")
    place.write("another.cu", "")
    assert place.recorded_keys() == [key]


def test_going_back_finds_what_was_built(place: Place) -> None:
    first = place.built()
    place.write("include/x.h", "int y;\n")
    time.sleep(0.02)
    second = place.built()
    assert first != second and place.recorded_keys() == [second]
    place.write("include/x.h", "int x;\n")
    assert place.recorded_keys() == [first]


def exchange_folder(place: Place) -> None:
    """Another folder with a header of the same name takes its place, of the same age."""
    (place.root / "linked").rename(place.root / "old")
    (place.root / "linked.new").rename(place.root / "linked")


def exchange_link(place: Place) -> None:
    (place.root / "link").unlink()
    (place.root / "link").symlink_to("linked.new")


#: What is read, and how it changes after the first look at it and before the compiler's.
MEANWHILE: dict[str, tuple[str, Callable[[Place], None]]] = {
    "a file": ("own.h", lambda place: place.write("own.h", "int late;\n")),
    "a file of the toolkit": (
        "toolkit/include/cuda_fp16.h",
        lambda p: p.write("toolkit/include/cuda_fp16.h", "late\n"),
    ),
    "the compiler": ("own.h", lambda place: place.write("toolkit/nvcc", "another\n")),
    "a folder": ("linked/a.h", exchange_folder),
    "a link to a folder": ("link/a.h", exchange_link),
    "a link behind a link": ("far/a.h", exchange_link),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_changes_while_it_is_compiled(place: Place, what: str) -> None:
    file, change = MEANWHILE[what]
    for name in ("linked/a.h", "linked.new/a.h"):
        place.write(name, f"int {name[6]};\n")
    (place.root / "link").symlink_to("linked", target_is_directory=True)
    (place.root / "far").symlink_to("link", target_is_directory=True)
    rule = f"s.o: {place.root}/{file}\n"
    place.learned(place.inputs(), rule)
    inputs = place.inputs()
    assert inputs.keys("v", inputs.question("flags"))  # reads the file
    (place.root / "unread.h").touch()  # and so another file is no change
    place.learned(inputs, rule)
    inputs = place.inputs()
    inputs.keys("v", inputs.question("flags"))
    time.sleep(0.02)  # times of files have a granularity of some milliseconds
    change(place)
    with pytest.raises(UsageError, match=r": changed during compilation"):
        place.learned(inputs, rule)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#define HEADER(x) <lib/x>\n#include HEADER(x.h)", ""),  # the compiler lists what it reads
        ('#ifdef __has_include\n#if defined(__has_include) && __has_include ( <x.h>) || __has_include_next("y")', ""),
        ("#if __has_include(NAME)", "a computed __has_include"),
        ("#define HAS __has_include", "a computed __has_include"),
        ("# embed <x>", "#embed"),
        ('asm(".inc" "bin \\"x\\"");', ".incbin or .include of an assembler"),
        ('asm(".include \\"x\\"");', ".incbin or .include of an assembler"),
        ("const char* t = __TIME__;", "the time of compilation"),
        ("// __TIME__ .incbin #include NAME", ""),
    ],
)
def test_text_that_reads_what_the_compiler_does_not_list(text: str, reason: str) -> None:
    assert unlisted(plain_text(text.encode()), "-O3 -DGIVEN=<x.h> -I@x") == reason


@pytest.mark.parametrize("include", ["# /**/ include \\\n HEADER(x)", "%:include HEADER(x)"])
@pytest.mark.parametrize(
    ("file", "shadows"),
    [("early/x.h", True), ("x.h", True), ("early/deep/x.h", False), ("early/other.h", False), ("deep/other.h", False)],
)
def test_a_header_of_a_computed_name_may_be_shadowed(place: Place, include: str, file: str, shadows: bool) -> None:
    place.write("s.cu", f"#define HEADER(x) <x.h>\n{include}\n")
    before = place.built()
    assert before in place.recorded_keys()
    place.write(file, "int other;\n")
    assert (before in place.recorded_keys()) is not shadows


@pytest.mark.parametrize("flags", ["--options-file a.opt", "-G -optf=a", "-Xcompiler @a", "@a", "-Xcompiler='@a'"])
def test_flags_that_lie_in_a_file(flags: str) -> None:
    assert unlisted(b"", flags) == "a file of options"


def test_an_object_of_unknown_inputs_is_no_answer(place: Place) -> None:
    key = place.built()
    place.write("own.h", "const char* when = __TIME__;\n")
    assert place.built() != key
    assert place.recorded_keys() != [place.built()]


@pytest.mark.parametrize("folder", ["sub", "../elsewhere", "toolkit/include/crt"])
def test_a_header_that_is_probed_anywhere(place: Place, folder: str) -> None:
    """Even where no folder of headers is listed: below a link, or where the system's headers lie."""
    place.write("toolkit/include/crt/x.h", "")
    (place.root / folder).mkdir(exist_ok=True)
    (place.root / "include" / "link").symlink_to(place.root / folder)
    place.write("s.cu", "#if __has_include(<link/late.h>) || __has_include(<crt/late.h>)\n#endif\n")
    key = place.built()
    assert place.recorded_keys() == [key]
    place.write(f"{folder}/late.h", "")
    assert place.recorded_keys() != [key]


@pytest.mark.parametrize("flags", ["-include early.h", "--pre-include=early.h", "-Xcompiler -specs=early.h"])
def test_a_file_that_flags_of_the_environment_name(place: Place, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    place.write("early.h", "int early;\n")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", flags)
    key = place.built()
    assert place.recorded_keys() == [key]
    place.write("early.h", "int other;\n")
    assert place.recorded_keys() == []


@pytest.mark.parametrize("damage", ["", "[", '[{"files": 1}]', "[[]]", '{"a": 1}'])
def test_a_damaged_memory_is_no_memory(place: Place, damage: str) -> None:
    key = place.built()
    for path in place.build.glob("*.json"):
        path.write_text(damage, encoding="utf-8")
    assert key not in place.recorded_keys()
    assert place.built() == key


# --- the source_hash --------------------------------------------------------------------------------


def test_the_source_hash_is_the_same_in_another_place(tmp_path: Path, place: Place) -> None:
    other = Place(tmp_path / "elsewhere" / "deep")
    other.write("s.cu", (other.root / "s.cu").read_text(encoding="utf-8") + "// a comment\n")
    source_hashes = [
        p.inputs().source_hash(["flags"], [f"{p.root}/s.cu", "include/x.h"], {"flashcore/problem.h": "text"})
        for p in (place, other)
    ]
    assert source_hashes[0] == source_hashes[1]
    other.write("include/x.h", "int y;\n")
    assert source_hashes[0] != other.inputs().source_hash(
        ["flags"], [f"{other.root}/s.cu", "include/x.h"], {"flashcore/problem.h": "text"}
    )


def test_headers_of_toolkit_and_system_are_not_the_users(place: Place) -> None:
    inputs = place.inputs()
    system = ["/usr/include/stdio.h", "/opt/gcc/include/c++/13/vector", f"{place.root}/toolkit/include/cuda_fp16.h"]
    assert not any(inputs._is_users(path) for path in system)
    assert all(map(inputs._is_users, [f"{place.root}/s.cu", "/usr/local/include/x.h", "/opt/cutlass/include/cute.h"]))


def test_the_programs_that_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "wrapper", "ccbin/g++"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("NVCC_CCBIN", str(tmp_path / "ccbin"))
    nvcc = toolchain.Nvcc(tmp_path / "wrapper", tmp_path, "13.0", "13.0.88")
    results = {os.path.normpath(p) for p in toolchain.compilers(nvcc)}
    assert results >= {str(tmp_path / n) for n in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "wrapper", "ccbin/g++")}
