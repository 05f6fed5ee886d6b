"""The launcher's program on a stand-in for the CUDA driver, and what it does with plans that are wrong."""

from __future__ import annotations

import collections
import ctypes
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from extensions.judge.tests.driver import Machine, plan
from flashcore.errors import CapabilityError
from flashcore_judge.launcher import program
from flashcore_judge.launcher.plan import Plan
from flashcore_judge.launcher.program import Launcher, LauncherError

X = bytes(range(256))
Machines = Callable[..., Machine]


def launcher(machine: Machine, given: Plan, limit: float = 20.0) -> AbstractContextManager[Launcher]:
    (machine.folder / "x.raw").write_bytes(X)
    return program.launcher(given, machine.folder, limit, machine.environment)


def test_a_plan_is_launched_and_its_output_read(machine: Machines) -> None:
    here = machine()
    with launcher(
        here, plan(dynamic_smem=60000, cluster=[2, 1, 1], grid=[4, 3, 2], programmatic=True, cooperative=True)
    ) as one:
        assert one.device["name"] == "Stand-in" and one.device["uuid"] == "GPU-00112233-4455-6677-8899-aabbccddeeff"
        assert one.sets == 4  # all fit half of 64 KiB
        here.log()
        assert one.read("y") == bytes([7]) * 256
        one.ask("call", 2)
        assert one.read("y", 2) == X and one.read("y", 0) == bytes([7]) * 256
    (line,) = here.log()
    name, *numbers = line.split()
    assert [name, *numbers[:10]] == [
        *("copy_bytes", "4", "3", "2", "128", "1", "1", "60000"),
        *("cluster=2,1,1", "programmatic=1", "cooperative=1"),
    ]
    source, target, size = numbers[10:]
    assert size == "00010000" and len(source) == len(target) == 16 and source != target


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
    with launcher(here, Plan.model_validate(given)) as one:
        here.log()
        one.ask("call", 0)
        one.ask("call", 1)
    first, second = (bytes.fromhex("".join(line.split()[8:])) for line in here.log())
    address, number, raw = struct.unpack("<Qi2s2x", first[:16])
    words = struct.unpack("<16Q", first[16:144])
    assert (number, raw) == (-2, b"\x0a\x0b")
    assert words[:14] == (address - 16, 6, 2, 64, 32, 128, 64, 8, 1, 1, 0, 3, 3, 1)
    assert first[144:] == second[144:] and first[:8] != second[:8]  # one workspace, sets of tensors


@pytest.mark.parametrize("regime", ["isolated", "back_to_back", "cold", "eager"])
def test_each_regime_times_the_call_alone(machine: Machines, regime: str) -> None:
    here = machine()
    with launcher(here, plan()) as one:
        assert one.ask("sample", regime)["us"] == pytest.approx([3.0], abs=1e-3)
        assert one.ask("empty", regime)["us"] == pytest.approx([0.5], abs=1e-3)
        here.log()
        answer = one.ask("sample", regime)
    ran = [line.split()[0] for line in here.log()]
    counts = collections.Counter(ran)
    launches = round(400 / 3)
    assert answer["launches"] == answer["eager_calls"] == launches
    warm, cover = ["copy_bytes"] * 4, ["spin"]
    if regime == "cold":
        assert ran == [*cover, *["flush", "spin", "copy_bytes"] * 5, *cover, *["flush", "spin"] * 5]
    elif regime == "isolated":
        assert ran == [*warm, *cover, *["spin", "copy_bytes"] * 40, *cover, *["spin"] * 40]
    elif regime == "back_to_back":
        assert ran == [*warm, *cover, *["copy_bytes"] * launches]
    else:
        assert counts == {"copy_bytes": launches}


def test_single_calls_lie_between_events(machine: Machines) -> None:
    with launcher(machine(), plan()) as one:
        assert one.ask("each", "cold", "calls", "first")["us"] == pytest.approx([3.0] * 40, abs=1e-3)
        assert one.ask("each", "isolated", "nothing", "again")["us"] == pytest.approx([0.0] * 40, abs=1e-3)


def test_few_long_calls_lie_between_events(machine: Machines) -> None:
    with launcher(machine(), plan("slow_copy")) as one:
        assert one.ask("each", "isolated", "calls", "first")["us"] == pytest.approx([2000.0] * 3)


def test_a_tensor_that_is_written_holds_the_file_in_the_next_call(machine: Machines) -> None:
    here = machine()
    with launcher(here, plan()) as one:
        (here.folder / "new.raw").write_bytes(bytes([9]) * 256)
        one.ask("write", "x", "new.raw", 3)
        one.ask("call", 3)
        assert one.read("y", 3) == bytes([9]) * 256


def test_what_a_call_writes_over_its_input_is_restored_before_each_sample(machine: Machines) -> None:
    here = machine()
    with launcher(here, plan("inc_bytes", "inout")) as one:
        one.ask("call", 0)
        assert one.read("y") == bytes([8]) * 256
        for regime in ("isolated", "back_to_back", "cold", "eager"):
            assert one.ask("sample", regime)["launches"] == 100  # as many as there are copies
            assert {one.read("y", i) for i in range(5)} == {bytes([8]) * 256}, regime
        (here.folder / "new.raw").write_bytes(bytes([9]) * 256)
        one.ask("write", "y", "new.raw", 0)
        one.ask("sample", "isolated")
        assert [one.read("y", i)[0] for i in range(5)] == [10, 8, 8, 8, 10]  # of four sets


@pytest.mark.parametrize(("dtype", "form"), [("float32", "<f"), ("float16", "<e"), ("bfloat16", "")])
def test_drawn_numbers_are_those_of_their_seed(machine: Machines, dtype: str, form: str) -> None:
    given = plan().model_dump()
    given["tensors"]["x"] = {"dtype": dtype, "sizes": [500], "seed": 5}
    with launcher(machine(), Plan.model_validate(given)) as one:
        raw, other = one.read("x"), one.read("x", 1)
    expected = []
    for i in range(500):
        mask = (1 << 64) - 1
        x = (5 + (i + 1) * 0x9E3779B97F4A7C15) & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        x ^= x >> 31
        expected.append(((x & 255) + (x >> 8 & 255) + (x >> 16 & 255)) // 2 / 64 - 191 / 64)
    wide = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, 1000, 2)) if not form else raw
    assert [x for (x,) in struct.iter_unpack(form or "<f", wide)] == expected
    assert raw != other and 0.9 < (sum(x * x for x in expected) / 500) ** 0.5 < 1.1


@pytest.mark.parametrize(
    ("fails", "call"),
    [
        ("cuModuleLoadData:2", "cubin k.cubin: cuModuleLoadData"),  # the first is of the timing's own kernels
        ("cuModuleGetFunction:3", "launch 0: cuModuleGetFunction"),
        ("cuMemAlloc:2", "cuMemAlloc"),
    ],
)
def test_a_plan_that_cannot_be_loaded_names_the_call(machine: Machines, fails: str, call: str) -> None:
    with (
        pytest.raises(LauncherError, match=f"{call}: CUDA_ERROR_ILLEGAL_ADDRESS"),
        launcher(machine(LIBCUDA_FAILS=fails), plan()),
    ):
        pass


def test_a_call_that_fails_names_itself_and_ends_the_process(machine: Machines) -> None:
    with launcher(machine(LIBCUDA_FAILS="cuStreamSynchronize:2"), plan()) as one:
        with pytest.raises(LauncherError, match="launch 0: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"):
            one.ask("call", 0)
        with pytest.raises(LauncherError, match="exit code 1"):
            one.ask("call", 0)


def test_a_machine_without_a_gpu_is_incapable(machine: Machines) -> None:
    with (
        pytest.raises(CapabilityError, match="expected a GPU: cuInit"),
        launcher(machine(LIBCUDA_FAILS="cuInit"), plan()),
    ):
        pass


def test_a_gpu_without_enough_memory_is_incapable(machine: Machines) -> None:
    with (
        pytest.raises(CapabilityError, match="expected GPU memory: cuMemAlloc"),
        launcher(machine(LIBCUDA_MEMORY="1000"), plan()),
    ):
        pass


def test_a_hang_ends_at_its_limit(machine: Machines) -> None:
    with (
        pytest.raises(LauncherError, match="no answer within 1 s"),
        launcher(machine(LIBCUDA_HANGS="cuStreamSynchronize"), plan(), 1.0),
    ):
        pass


def test_a_command_that_is_refused_changes_nothing(machine: Machines) -> None:
    with launcher(machine(), plan()) as one:
        for command in (
            "",
            "nothing",
            "call",
            "call 4",
            "call -1",
            "read z a.raw 0",
            "read y ../a.raw 0",
            "sample hot",
            "write x x.raw 9",
        ):
            with pytest.raises(LauncherError, match="expected"):
                one.ask(command)
        (machine().folder / "short.raw").write_bytes(b"short")
        with pytest.raises(LauncherError, match="expected 256 bytes"):
            one.ask("write", "x", "short.raw", 0)
        one.ask("call", 0)
        assert one.read("y") == X


def test_a_kernel_and_its_launch_must_agree(machine: Machines) -> None:
    for parameters, message in (
        ("8,8", "expected 2 arguments"),
        ("8,8,8", "expected 8 bytes of argument 2"),
        ("8,8,4,4", "expected 4 arg"),
        ("16,8,4", "expected 16 bytes of argument 0"),
    ):
        with pytest.raises(LauncherError, match=message), launcher(machine(LIBCUDA_PARAMETERS=parameters), plan()):
            pass
    parts = [[{"tensor": "x"}, {"at": 8, "hex": "00"}], [{"tensor": "y"}], [{"hex": "00010000"}]]
    with launcher(machine(LIBCUDA_PARAMETERS="12,8,4"), plan("inc_bytes", arguments=parts)) as one:
        one.ask("call", 0)  # a struct may be larger than its parts
    with (
        pytest.raises(LauncherError, match="expected 8 bytes of argument 0"),
        launcher(machine(), plan("inc_bytes", arguments=parts)),
    ):
        pass


# --- plans as words that plan.py did not write


def checked(folder: Path, words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the last event of the program that checks a plan."""
    (folder / "words").write_text(words)
    command = [str(program.built("launcher")), "--check", str(folder / "words")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


GOOD = (
    "flashcore-plan 1 1 x uint8 1 256 input 255 -1 0 "
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
        ("input 255", "input 256", "from 0 to 255"),
        ("255 -1", "255 3", "uint8 is not drawn"),
        ("255 -1 0", "255 -1 1 .hidden", "a file's name"),
        ("255 -1 0", "255 -1 5 a b c d e", "from 0 to 4"),
        ("copy_bytes 3", "copy_bytes 2", "launch 0, word 15: expected an integer from 3 to 3"),
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
        ("0 x 0", "0 z 0", "launch 0, argument 0, word 33: expected a tensor of the plan, found z"),
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


def test_another_program_launches_a_plan_on_its_own_tensors(machine: Machines) -> None:
    here = machine()
    (here.folder / "words").write_text(plan().words().replace("1 x.raw", "0"))
    code = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.flashcore_plan_open.restype = library.flashcore_plan_launch.restype = ctypes.c_char_p
plan, x, y = ctypes.c_void_p(), ctypes.create_string_buffer(bytes(range(256)), 256), ctypes.create_string_buffer(256)
print(library.flashcore_plan_open((sys.argv[2] + "/none").encode(), ctypes.byref(plan)))
print(library.flashcore_plan_open((sys.argv[2] + "/words").encode(), ctypes.byref(plan)))
addresses = (ctypes.c_uint64 * 2)(ctypes.addressof(x), ctypes.addressof(y))
print([library.flashcore_plan_launch(plan, addresses, None) for _ in range(2)], y.raw == x.raw)
"""
    command = [sys.executable, "-c", code, str(program.built("launcher.so", "-shared", "-fPIC")), str(here.folder)]
    environment = {**here.environment, "LIBCUDA_FAILS": "cuLaunchKernelEx:2"}
    first, second, third = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "expected a file" in first and second == "None"
    assert third == "[None, b'cuLaunchKernelEx: CUDA_ERROR_ILLEGAL_ADDRESS'] True"
    assert ctypes.sizeof(ctypes.c_void_p) == 8
