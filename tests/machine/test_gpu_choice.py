"""Which GPUs a run uses; their leases: one holder at a time, whoever waits is told, and nothing is left of it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.machine import gpu, gpu_choice, python_process
from flashcore.machine.gpu import Gpu
from flashcore.machine.gpu_choice import by_kind, chosen, visible

H200 = Gpu("NVIDIA H200", (9, 0), 132, 150 * 10**9, 50 * 2**20, 1980.0, "580")
L4 = Gpu("NVIDIA L4", (8, 9), 58, 24 * 10**9, 48 * 2**20, 2040.0, "580")
HERE = {"GPU-a1": H200, "GPU-b2": H200, "GPU-b3": L4, "GPU-c4": H200}


@pytest.mark.parametrize(
    ("requested", "results"),
    [
        ("all", ["GPU-a1", "GPU-b2", "GPU-c4"]),
        ("2", ["GPU-a1", "GPU-b2"]),
        ("GPU-c4", ["GPU-c4"]),
        ("c,a1", ["GPU-c4", "GPU-a1"]),
        ("b3", ["GPU-b3"]),
    ],
)
def test_gpus_are_chosen_by_kind_number_or_uuid(
    requested: str, results: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert list(chosen(requested, HERE)) == results
    assert chosen(requested, {}) == {}, "a machine without a GPU says so later"


def test_all_names_the_gpus_of_other_kinds_and_the_option_that_uses_them() -> None:
    messages: list[str] = []
    assert list(chosen("all", HERE, messages.append)) == ["GPU-a1", "GPU-b2", "GPU-c4"]
    first = "GPU-a1 (NVIDIA H200), GPU-b2 (NVIDIA H200), GPU-c4 (NVIDIA H200)"
    assert messages == [f"left out, of another model than {first}: GPU-b3 (NVIDIA L4); to use: --gpus GPU-b3"]
    for requested in ("2", "b3", "a1,c4"):
        chosen(requested, HERE, messages.append)
    assert len(messages) == 1, "who names them knows the others"


@pytest.mark.parametrize(
    ("requested", "kinds"),
    [
        ("all", [["GPU-a1", "GPU-b2", "GPU-c4"], ["GPU-b3"]]),
        ("b3,c4,a1", [["GPU-b3"], ["GPU-c4", "GPU-a1"]]),
        ("1", [["GPU-a1"]]),
    ],
)
def test_gpus_come_by_kind(
    requested: str, kinds: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert [list(kind) for kind in by_kind(requested, HERE)] == kinds and by_kind(requested, {}) == []


def test_of_so_many_those_that_nobody_holds_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with gpu_choice.lease("GPU-a1"):
        assert list(chosen("2", HERE)) == ["GPU-b2", "GPU-c4"]
        assert list(chosen("3", HERE)) == ["GPU-b2", "GPU-c4", "GPU-a1"]
    assert list(chosen("2", HERE)) == ["GPU-a1", "GPU-b2"]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("GPU-x", "--gpus GPU-x: expected one GPU's UUID; none matches among GPU-a1 (NVIDIA H200)"),
        ("b", "--gpus b: expected one GPU's UUID; several match among"),
        ("4", "--gpus 4: expected 1 to 3"),
        ("0", "--gpus 0: expected 1 to 3"),
        (",", "expected all, a number, or comma-separated UUIDs"),
        ("a1,b3", "expected GPUs of one model, found GPU-a1 (NVIDIA H200), GPU-b3 (NVIDIA L4)"),
    ],
)
def test_what_is_not_there_is_refused(requested: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen(requested, HERE)
    assert message in str(error.value)


def test_a_driver_that_is_hidden_shows_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "uuids", lambda: ["GPU-a1", "GPU-b2"])
    monkeypatch.setattr(Gpu, "numbered", staticmethod(lambda number: (H200, L4)[number]))
    assert visible() == {"GPU-a1": H200, "GPU-b2": L4}
    monkeypatch.setattr(Gpu, "find", staticmethod(lambda: None))
    assert visible() == {}


# --- leases ---


def test_a_second_holder_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    order: list[str] = []
    waiting = threading.Event()

    def told(text: str) -> None:
        order.append(text)
        waiting.set()

    def second() -> None:
        with gpu_choice.lease("GPU-1", told):
            order.append("second")

    with gpu_choice.lease("GPU-1"), gpu_choice.lease("GPU-2"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(120)
        order.append("first")
    thread.join(120)
    assert order == ["GPU-1 is leased by another process: waiting for it", "first", "second"]
    with gpu_choice.lease("GPU-1"):
        pass


def test_several_are_held_together_and_seen_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with gpu_choice.leases(["GPU-2", "GPU-1"]):
        assert [gpu_choice.is_free(f"GPU-{n}") for n in (1, 2, 3)] == [False, False, True]
    assert gpu_choice.is_free("GPU-1") and gpu_choice.is_free("GPU-2")


def test_two_that_want_the_same_two_do_not_wait_in_a_circle(tmp_path: Path) -> None:
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from flashcore.machine import gpu_choice\n"
        "for _ in range(50):\n"
        "    with gpu_choice.leases(sys.argv[2:]): time.sleep(0.001)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [
        subprocess.Popen([*command, *order], env=python_process.environment())
        for order in (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1"))
    ]
    assert [process.wait(200) for process in both] == [0, 0]
