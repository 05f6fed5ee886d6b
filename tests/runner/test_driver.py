"""The driver's functions get the arguments that CUDA documents, and its errors become ours; a stand-in answers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.runner.driver import Driver

#: Graph → its nodes; a node's kind is 0 (kernel), 1 (copy), 2 (memset), or 4 with a graph of its own.
GRAPHS = {100: [1, 2, 3, 4], 200: [5, 6], 300: []}
KINDS = {1: 0, 2: 1, 3: 4, 4: 2, 5: 0, 6: 0}
#: Kernel → its function.
FUNCTIONS = {b"spin": 11, b"flush": 12}


class Cuda:
    """Stands in for libcuda: notes calls, and answers about :data:`GRAPHS`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.codes: dict[str, int] = {}
        self.capturing = 100

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if answer := getattr(type(self), f"answer_{name}", None):
                answer(self, *(getattr(a, "_obj", a) for a in arguments))
            return self.codes.get(name, 0)

        return call

    def answer_cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> None:
        function.value = FUNCTIONS[name.value]

    def answer_cuStreamGetCaptureInfo_v2(self, stream: Any, status: Any, identity: Any, graph: Any, *_: Any) -> None:
        graph.value = self.capturing

    def answer_cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> None:
        if nodes is None:
            count.value = len(GRAPHS[graph.value])
        for i, node in enumerate(GRAPHS[graph.value] if nodes is not None else ()):
            nodes[i] = node

    def answer_cuGraphNodeGetType(self, node: Any, kind: Any) -> None:
        kind.value = KINDS[node.value]

    def answer_cuGraphChildGraphNodeGetGraph(self, node: Any, graph: Any) -> None:
        graph.value = 200

    def answer_cuLaunchKernel(self, *arguments: Any) -> None:
        self.values = [ctypes.c_uint64.from_address(at).value for at in arguments[-2]]

    def answer_cuEventElapsedTime(self, milliseconds: Any, start: Any, end: Any) -> None:
        milliseconds.value = 0.25


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def test_kernels_and_copies_are_counted_in_nested_graphs(cuda: Cuda) -> None:
    driver = Driver()
    assert driver.captured(5) == (3, 1)
    for cuda.capturing in (300, 0):
        assert driver.captured(5) == (0, 0)


def test_a_spin_is_one_launch_of_its_kernel(cuda: Cuda) -> None:
    Driver().launch("spin", 5, 7, 32, 1234)
    name, (function, *sizes, stream, _, extra) = cuda.calls[-1]
    assert (name, function.value, sizes, stream.value, extra) == (
        "cuLaunchKernel", 11, [7, 1, 1, 32, 1, 1, 0], 5, None
    )  # fmt: skip
    assert cuda.values == [1234]


def test_events_are_nodes_of_a_graph_and_times_are_microseconds(cuda: Cuda) -> None:
    driver = Driver()
    event = driver.event()
    driver.record(event, 5)
    name, (recorded, stream, flags) = cuda.calls[-1]
    assert (name, recorded, stream.value, flags) == ("cuEventRecordWithFlags", event, 5, 1)
    assert driver.elapsed_us(event, driver.event()) == 250.0


def test_an_error_of_the_driver_is_told_with_its_code(cuda: Cuda) -> None:
    driver = Driver()
    cuda.codes["cuEventCreate"] = 304
    with pytest.raises(CapabilityError, match=r"cuEventCreate: CUDA driver error 304"):
        driver.event()
