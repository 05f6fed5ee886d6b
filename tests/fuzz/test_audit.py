"""DAMAGED and hostile compiled code is read or refused, in 5 s of CPU time and 1 GiB: `make fuzz` reads 10,000."""

from __future__ import annotations

import contextlib
import io
import random
import re
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

from flashcore.cli.main import main
from flashcore.errors import Exit
from tests.recorded import RECORDED
from tests.support.containers import archive, compressed, member, program, tarred, zipped
from tests.support.fatbins import CUBINS, SPECIFIC, both, entry, fatbin, library
from tests.support.fuzzing import SEEDS, fuzz

SECONDS, BYTES = 5, 1 << 30


class Slow(BaseException):
    """No error that a reader may take for damage."""


#: What headers begin with: their fields lie behind.
_HEADS = re.compile(
    rb"\x7fELF|\x50\xed\x55\xba|[\x01\x02]\x00\x01\x01\x40\x00|PK\x01\x02|PK\x03\x04|PK\x05\x06|!<arch>|!<thin>|`\n"
)
_EDGES = (0, 1, 2, 14, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


@cache
def originals() -> dict[str, bytes]:
    """A file of each format."""
    ptx = b".version 8.0\n.target sm_90\n.visible .entry k() { ret; }\n"
    entries = []
    for package, sm in (("lz4.block", 80), ("zstandard", 90)):
        content = CUBINS["sm_80" if sm == 80 else "sm_90a"]
        with contextlib.suppress(pytest.skip.Exception):
            packed, flags = compressed(package, content)
            entries.append(entry(packed, sm, flags | (SPECIFIC if sm == 90 else 0), unpacked=len(content)))
    packed = fatbin(*entries)
    return {
        "k.cubin": CUBINS["sm_90a"],
        "old.cubin": CUBINS["sm_80"],
        "k.fatbin": both(),
        "packed.fatbin": packed,
        "k.ptx": ptx,
        "k.so": library(packed),
        "k.a": archive(member(b"/0", library(packed)), member(b"b.o/", library(both()))),
        "thin.a": archive(magic=b"!<thin>\n") + member(b"k.so/", b"")[:48] + b"%-10d`\n" % 9,
        "data.so": library(CUBINS["sm_80"] + bytes(3) + both(), ".rodata"),
        "k.dll": program(packed),
        "k.tar": tarred({"c.so": library(packed), "k.cubin": CUBINS["sm_80"]}),
        "k.tar.xz": tarred({"c.so": library(packed)}, "w:xz"),
        "k.tgz": tarred({"c.so": library(packed)}, "w:gz"),
        "called.cubin": (RECORDED / "spills_separate.cubin").read_bytes(),
        "k.whl": zipped({"p/__init__.py": b"", "p/c.so": library(packed)}),
        "k.pt2": zipped({"data/k.cubin": CUBINS["sm_80"], "k.ptx": ptx, "w.zip": zipped({"k.fatbin": both()})}),
    }


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The content with one to eight changes: bytes, fields of headers, pieces lost, doubled, moved; or cut short."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        heads = [match.start() for match in _HEADS.finditer(data)]
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 | 1 | 2 if heads:
                at = chance.choice(heads) + chance.randrange(72)
                width = chance.choice((1, 2, 4, 8))
                value = chance.choice((*_EDGES, len(data), chance.randrange(1 << 16), chance.randrange(1 << 63)))
                data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
            case 3:
                data[at : at + chance.choice((1, 8, 1000))] = b""
            case 4:
                begin = chance.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + chance.choice((8, 64, 5000))]
            case _:
                data[at : at + 4] = chance.randbytes(4)
    return bytes(data[: chance.choice((len(data),) * 5 + (chance.randrange(len(data) + 1),))])


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Ends what takes more than the limits."""

    def expired(*_: object) -> None:
        raise Slow

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, expired)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of CPU time
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def audited(path: Path) -> tuple[int, str]:
    """The exit code and the output."""
    out = io.StringIO()
    with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(["audit", str(path), "--for", "h200", "--top", "1000"])
    return code, out.getvalue()


@fuzz(0.1)
@given(seed=SEEDS)
def test_mutated_files(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(sorted(originals()))
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(mutated(originals()[name], chance))
    code, output = audited(path)
    assert code in (Exit.OK, Exit.UNMEASURED), output
    assert "Traceback" not in output
    path.unlink()


def elf(section: bytes, kind: int, size: int, count: int, entry_size: int = 64) -> bytes:
    """A cubin of ``count`` sections of one name, which all cover ``size`` bytes."""
    names = 64 + 64 * 2
    header = b"\x7fELF\x02\x01\x01\x07" + bytes(8) + struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 64, 0x5A0D5A)
    header += struct.pack("<HHHHHH", 64, 0, 0, entry_size, count, 1)
    rows = struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 0, size, 0, 0, 1, 0)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names, len(section) + 1, 0, 0, 1, 0)
    return header + rows + strings + section + b"\0" + (rows * (count - 2) if entry_size else b"")


def bomb(package: str, content: bytes, count: int = 1) -> bytes:
    packed, flags = compressed(package, content)
    return fatbin(*[entry(packed, 90, flags, unpacked=len(content))] * count)


def nested(content: bytes, levels: int) -> bytes:
    return content if not levels else zipped({f"{n}.zip": nested(content, levels - 1) for n in range(8)})


def overlapping(content: bytes) -> bytes:
    """A fatbin of which each entry says that its compressed content is the rest of the file."""
    head = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, 0, 0xFFFFFFFF, 0, 8, 1, 90, 0, 0, 0x11, 0, 0)
    return fatbin(head * 30_000, content)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("zstd", lambda: bomb("zstandard", bytes(200 << 20))),
        ("many_zstd", lambda: bomb("zstandard", bytes(200 << 20), 50)),
        ("many_lz4", lambda: bomb("lz4.block", bytes(60 << 20), 30)),
        ("zip", lambda: zipped({f"{n}.so": b"\x7fELF\x02" + bytes(130 << 20) for n in range(5)})),
        ("nested_zip", lambda: nested(zipped({"k.so": b"\x7fELF\x02" + bytes(20 << 20)}), 3)),
        ("one_section_often", lambda: library(both()).replace(struct.pack("<HHH", 64, 3, 2), b"\0\0\xff\xff\2\0")),
        ("attributes", lambda: bomb("zstandard", elf(b".nv.info", 1, 200 << 20, 2).ljust(200 << 20, b"\1"))),
        ("overlapping_sections", lambda: elf(b".nv.constant0." + b"k" * 1_000_000, 1, 1 << 30, 60_000)),
        ("overlapping_entries", lambda: overlapping(bytes(2 << 20))),
        ("negative_member", lambda: archive() + b"%-48s%-10d`\n" % (b"k.o/", -60)),
        ("thin_in_itself", lambda: archive(magic=b"!<thin>\n") + (b"%-48s%-10d`\n" % (b"thin_in_itself/", 9)) * 50),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_bombs(name: str, make: Callable[[], bytes], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(make())
    code, output = audited(tmp_path / name)
    assert code == Exit.UNMEASURED, output[-1000:]
    assert "Traceback" not in output
