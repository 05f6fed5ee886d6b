"""The launcher's library on a stand-in for the CUDA driver, and what it does with plans that are wrong."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extensions.judge.tests.driver import Machine, plan
from flashcore_judge.launcher import program
from flashcore_judge.launcher.plan import Plan

X = bytes(range(256))
Machines = Callable[..., Machine]
#: Opens a plan and launches it on tensors of so many bytes, the first of which counts up, until something fails.
CODE = """
import ctypes, json, sys
library, path, *sizes = sys.argv[1:]
library = ctypes.CDLL(library)
library.flashcore_plan_open.restype = library.flashcore_plan_launch.restype = ctypes.c_char_p
plan, tensors = ctypes.c_void_p(), [ctypes.create_string_buffer(int(size)) for size in sizes]
tensors[0].raw = bytes(range(256))[:len(tensors[0])].ljust(len(tensors[0]), b"-")
addresses = (ctypes.c_uint64 * len(tensors))(*map(ctypes.addressof, tensors))
message = library.flashcore_plan_open(path.encode(), ctypes.byref(plan))
message = message or library.flashcore_plan_launch(plan, addresses, None)
message = message or library.flashcore_plan_launch(plan, addresses, None)
print(json.dumps([message and message.decode(), [*addresses], [tensor.raw.hex() for tensor in tensors]]))
"""


def launched(machine: Machine, given: Plan, *sizes: int) -> tuple[str | None, list[int], list[bytes]]:
    """What failed, and the addresses and contents of the tensors after two calls."""
    (machine.folder / "words").write_text(given.words())
    library = program.built("launcher.so", "-shared", "-fPIC")
    command = [sys.executable, "-c", CODE, str(library), str(machine.folder / "words"), *map(str, sizes or (256, 256))]
    done = subprocess.run(command, env=machine.environment, capture_output=True, text=True, check=True, timeout=60)
    message, addresses, contents = json.loads(done.stdout)
    return message, addresses, [bytes.fromhex(content) for content in contents]


def test_a_plan_is_launched_on_given_tensors(machine: Machines) -> None:
    here = machine()
    sizes: dict[str, Any] = {"dynamic_smem": 60000, "cluster": [2, 1, 1], "grid": [4, 3, 2]}
    message, addresses, (_, y) = launched(here, plan(**sizes, programmatic=True, cooperative=True))
    assert message is None and y == X
    first, second = here.log()
    name, *numbers = first.split()
    assert [name, *numbers[:10]] == [
        *("copy_bytes", "4", "3", "2", "128", "1", "1", "60000"),
        *("cluster=2,1,1", "programmatic=1", "cooperative=1"),
    ]
    assert numbers[10:] == [*(address.to_bytes(8, "little").hex() for address in addresses), "00010000"]
    assert second == first


def test_parameters_by_value_stand_where_the_plan_says(machine: Machines) -> None:
    here = machine(LIBCUDA_PARAMETERS="16,128,8")
    of = {"dtype": "float16", "sizes": [64, 32], "strides": [128], "box": [64, 8], "steps": [1, 1], "swizzle": "128B"}
    arguments: list[list[dict[str, Any]]] = [
        [{"tensor": "x", "offset": 16}, {"at": 8, "hex": "feffffff"}, {"at": 12, "hex": "0a0b"}],
        [{"tensor": "x", "map": {**of, "promotion": "256B", "fill": "nan"}}],
        [{"tensor": "w"}],
    ]
    given = plan("takes_map", arguments=arguments).model_dump()
    given["tensors"] = {
        "x": {"dtype": "float16", "sizes": [32, 64]},
        "w": {"dtype": "uint8", "sizes": [9], "role": "workspace"},
    }
    message, (x, w), _ = launched(here, Plan.model_validate(given), 4096, 9)
    assert message is None
    first, second = (bytes.fromhex("".join(line.split()[8:])) for line in here.log())
    assert struct.unpack("<Qi2s2x", first[:16]) == (x + 16, -2, b"\x0a\x0b")
    assert struct.unpack("<16Q", first[16:144])[:14] == (x, 6, 2, 64, 32, 128, 64, 8, 1, 1, 0, 3, 3, 1)
    assert int.from_bytes(first[144:152], "little") == w and second == first


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernelEx"])
def test_a_call_of_the_driver_that_fails_is_named(machine: Machines, call: str) -> None:
    message, *_ = launched(machine(LIBCUDA_FAILS=call), plan())
    assert message == f"{call}: CUDA_ERROR_ILLEGAL_ADDRESS"


def test_a_plan_that_is_nowhere_is_refused(machine: Machines) -> None:
    here = machine()
    (here.folder / "k.cubin").unlink()
    message, *_ = launched(here, plan())
    assert message and "expected a file" in message


def test_a_kernel_and_its_launch_must_agree(machine: Machines) -> None:
    for parameters, expected in (
        ("8,8", "expected 2 arguments"),
        ("8,8,8", "expected 8 bytes of argument 2"),
        ("8,8,4,4", "expected 4 arg"),
        ("16,8,4", "expected 16 bytes of argument 0"),
    ):
        message, *_ = launched(machine(LIBCUDA_PARAMETERS=parameters), plan())
        assert message and expected in message
    parts = [[{"tensor": "x"}, {"at": 8, "hex": "00"}], [{"tensor": "y"}], [{"hex": "00010000"}]]
    given = plan("inc_bytes", arguments=parts)
    assert launched(machine(LIBCUDA_PARAMETERS="12,8,4"), given)[0] is None  # a struct may be larger than its parts
    message, *_ = launched(machine(), given)
    assert message and "expected 8 bytes of argument 0" in message


# --- plans as words that plan.py did not write


def checked(folder: Path, words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the last event of the program that checks a plan."""
    (folder / "words").write_text(words)
    command = [str(program.built("launcher")), str(folder / "words")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


GOOD = (
    "flashcore-plan 1 1 x uint8 1 256 input "
    "1 k.cubin copy_bytes 3 4 1 1 3 128 1 1 3 1 1 1 0 False False 1 2 0 x 0 - - 8 - 0 - 000a end"
)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("flashcore-plan", "plan", "word 1: expected one of flashcore-plan, found plan"),
        ("plan 1 ", "plan 2 ", "word 2: expected an integer from 1 to 1, found 2"),
        ("k.cubin", "../k.cubin", "a file's name in the plan's folder"),
        ("k.cubin", "/etc/passwd", "a file's name in the plan's folder"),
        ("k.cubin", "none.cubin", "expected a file of at most"),
        ("k.cubin", "words", "expected a whole 64-bit cubin"),
        ("1 256", "1 0", "tensor 0, word 7: expected an integer from 1"),
        ("1 256", "1 1099511627777", "tensor 0"),
        ("1 256", "1 99999999999999999999999", "tensor 0"),
        (
            "uint8 1 256",
            "float64 3 4294967296 4294967296 4294967296",
            "tensor 0, word 8: expected an integer from 1 to 32",
        ),
        ("1 256", "9 1 1 1 1 1 1 1 1 1", "from 0 to 8"),
        ("input", "inputs", "one of input, output, inout, workspace"),
        ("copy_bytes 3", "copy_bytes 2", "launch 0, word 12: expected an integer from 3 to 3"),
        ("copy_bytes 3 4", "copy_bytes 3 2147483648", "from 1 to 2147483647"),
        ("copy_bytes 3 4 1", "copy_bytes 3 4 65536", "from 1 to 65535"),
        ("128 1 1", "128 1 65", "from 1 to 64"),
        ("128 1 1", "128 16 1", "a block of at most 1024 threads"),
        ("128 1 1 3 1", "128 1 1 3 3", "a divisor of the grid"),
        ("1 1 1 0 F", "1 1 1 262145 F", "from 0 to 262144"),
        ("0 False", "0 1", "one of False, True"),
        ("False 1 2", "False 1 0", "launch 0, argument 0"),
        ("2 0 x", "2 32765 x", "from 0 to 32764"),
        ("2 0 x", "2 32760 x", "an argument that is not larger"),
        ("2 0 x", "2 4 x", "a multiple of 8 bytes"),
        ("0 x 0", "0 z 0", "launch 0, argument 0, word 30: expected a tensor of the plan, found z"),
        ("0 x 0", "0 x 256", "from 0 to 255"),
        ("x 0 - -", "x 0 - 00", "a tensor or hexadecimal digits, not both"),
        ("8 - 0", "8 - 1", "from 0 to 0"),
        ("000a", "-", "a tensor, or an even number of hexadecimal digits, found -"),
        ("000a", "000", "an even number of hexadecimal digits"),
        ("000a", "000z", "an even number of hexadecimal digits"),
        ("000a", "00" * 32757, "an argument that is not larger"),
        (" end", "", "expected one of end, found the end"),
    ],
)
def test_a_wrong_word_is_refused_by_its_place(machine: Machines, before: str, after: str, message: str) -> None:
    folder = machine().folder
    assert checked(folder, GOOD)[0] == 0 and before in GOOD
    code, event = checked(folder, GOOD.replace(before, after, 1))
    assert code == 2 and event["event"] == "error" and event["kind"] == "plan"
    assert message in event["message"]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ("uint8 2 16 16 1 16 2 16 8 2 1 1 none none zero", ""),  # 16 rows of 16 bytes are the tensor
        ("uint8 2 16 17 1 16 2 16 8 2 1 1 none none zero", "a map of what lies in its tensor"),
        ("uint16 1 256 0 1 256 1 1 none none zero", "a map of what lies in its tensor"),
        (
            "uint8 2 4294967296 4294967296 1 1099511627776 2 16 8 2 1 1 none none zero",
            "a map of what lies in its tensor",
        ),
        ("uint8 1 256 0 1 257 1 1 none none zero", "from 1 to 256"),
        ("uint8 1 256 0 1 256 1 9 none none zero", "from 1 to 8"),
        ("uint8 6", "from 1 to 5"),
        ("uint8 2 16 16 2 16 16", "from 1 to 1"),
        ("uint8 2 16 16 1 16 1 16", "from 2 to 2"),
        ("int8", "one of -, uint8, uint16"),
        ("uint8 1 256 0 1 256 1 1 96B none zero", "one of none, 32B, 64B, 128B"),
        ("uint8 1 256 0 1 256 1 1 none 32B zero", "one of none, 64B, 128B, 256B"),
        ("uint8 1 256 0 1 256 1 1 none none one", "one of zero, nan"),
    ],
)
def test_a_map_describes_what_lies_in_its_tensor(machine: Machines, dims: str, message: str) -> None:
    code, event = checked(machine().folder, GOOD.replace("x 0 -", f"x 0 {dims}"))
    assert (code, message in event.get("message", "")) == (2 if message else 0, True)


def test_a_map_is_aligned(machine: Machines) -> None:
    code, event = checked(machine().folder, GOOD.replace("0 x 0 -", "8 x 0 uint8 1 256 0 1 256 1 1 none none zero"))
    assert code == 2 and "a multiple of 64 bytes" in event["message"]


def test_no_mutated_plan_or_cubin_crashes_the_program(machine: Machines) -> None:
    folder, dice = machine().folder, random.Random(1)
    cubin = (folder / "k.cubin").read_bytes()
    seen = set()
    for _ in range(150):
        words = GOOD.split(" ")
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(words))
            words[at] = dice.choice(
                ["-1", "0", "9" * 30, str(1 << 63), "", "\0", "x" * 5000, dice.choice(words), "-", "end"]
            )
        seen.add(checked(folder, " ".join(words))[0])
    for _ in range(100):
        broken = bytearray(cubin)
        for _ in range(dice.randint(1, 4)):
            broken[dice.choice([dice.randrange(64), dice.randrange(len(broken))])] = dice.randrange(256)
        (folder / "broken").write_bytes(broken[: dice.choice([len(broken), dice.randrange(len(broken))])])
        seen.add(checked(folder, GOOD.replace("k.cubin", "broken"))[0])
    assert seen == {0, 2}
