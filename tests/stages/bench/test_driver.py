"""The driver's functions get the arguments that CUDA documents, and its errors become ours; a stand-in answers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.stages.bench.driver import Driver, _KernelNode, barriers

#: Graph → its nodes; a node's kind is 0 (kernel), 1 (copy), 2 (memset), or 4 with a graph of its own.
GRAPHS = {100: [1, 2, 3, 4], 200: [5, 6], 300: [], 400: [33, 35, 31, 34, 32]}
KINDS = {1: 0, 2: 1, 3: 4, 4: 2, 5: 0, 6: 0}
#: Kernel → its function.
FUNCTIONS = {b"spin": 11, b"flush": 12}


#: Of graph 400: node → function, blocks, threads, arguments.
KERNELS = {31: (11, 7, 32, 4000, 5, 6, 200), 33: (99, 1, 1), 35: (12, 400, 256, 7, 3)}


class Cuda:
    """Stands in for libcuda: notes calls, and answers about :data:`GRAPHS`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.codes: dict[str, int] = {}
        self.capturing = 100
        self.edges: list[tuple[int, int]] = []
        #: Of graph 400: events by node; kernels' parameters and arguments.
        self.recorded = {32: 71, 34: 72}
        self.kernels = {node: self.kernel(*values) for node, values in KERNELS.items()}

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
        kind.value = 7 if node.value in self.recorded else KINDS.get(node.value, 0)

    def answer_cuGraphGetEdges_v2(self, graph: Any, starts: Any, ends: Any, data: Any, count: Any) -> None:
        count.value = len(self.edges)
        for i, (start, end) in enumerate(self.edges if starts is not None else ()):
            starts[i], ends[i] = start, end

    def answer_cuGraphEventRecordNodeGetEvent(self, node: Any, event: Any) -> None:
        event.value = self.recorded[node.value]

    def answer_cuGraphKernelNodeGetParams_v2(self, node: Any, made: Any) -> None:
        if node.value in self.kernels:
            ctypes.pointer(made)[0] = self.kernels[node.value][0]

    @staticmethod
    def kernel(function: int, blocks: int, threads: int, *values: int) -> tuple[_KernelNode, list[ctypes.c_uint64]]:
        words = [ctypes.c_uint64(value) for value in values]
        at = (ctypes.c_void_p * len(words))(*map(ctypes.addressof, words))
        return _KernelNode(function, (blocks, 1, 1), (threads, 1, 1), 0, at), words

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
    Driver().launch("spin", 5, 7, 32, 1234, 0, 0, 0)
    name, (function, *sizes, stream, _, extra) = cuda.calls[-1]
    assert (name, function.value, sizes, stream.value, extra) == (
        "cuLaunchKernel", 11, [7, 1, 1, 32, 1, 1, 0], 5, None
    )  # fmt: skip
    assert cuda.values == [1234, 0, 0, 0]


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


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(1, 2), (2, 3), (3, 4)], [1, 2, 3, 4]),
        ([(1, 2), (1, 3), (2, 4), (3, 4)], [1, 4]),  # two streams within a call
        ([(1, 2), (2, 3), (2, 4)], [1, 2]),  # nothing waits for the third
        ([(1, 3), (2, 3), (3, 4)], [3, 4]),  # the second waits for nothing
        ([(1, 2), (1, 3), (3, 4)], [1]),  # a branch beside a chain
        ([(1, 2), (2, 3), (3, 4), (1, 4)], [1, 2, 3, 4]),
    ],
)
def test_barriers_are_before_or_after_every_other_node(edges: list[tuple[int, int]], expected: list[int]) -> None:
    assert list(barriers([4, 2, 3, 1], edges)) == expected


SPACED = [("spin", 7, 32, 4000, 5, 6, 200), ("event", 71), ("event", 72), ("flush", 400, 256, 7, 3)]


@pytest.mark.parametrize("change", ["", "clocks", "blocks", "event", "beside", "gone", "again"])
def test_what_was_enqueued_must_be_in_the_graph_as_it_was(cuda: Cuda, change: str) -> None:
    driver = Driver()
    driver.launch("spin", 5, 7, 32, 4000, 5, 6, 200)
    driver.record(ctypes.c_void_p(71), 5)
    driver.record(ctypes.c_void_p(72), 5)
    driver.launch("flush", 5, 400, 256, 7, 3)
    assert driver.enqueued == SPACED
    cuda.capturing = 400
    cuda.edges = [(31, 32), (32, 33), (33, 34), (34, 35)]  # 33 is a call
    if change == "clocks":
        cuda.kernels[31][1][0].value = 40
    elif change == "blocks":
        cuda.kernels[35][0].grid[0] = 1
    elif change == "event":
        cuda.recorded[32] = 72
    elif change == "beside":
        cuda.edges = [(31, 32), (32, 33), (32, 34), (34, 35)]
    elif change == "gone":
        driver.enqueued.append(SPACED[0])
    elif change == "again":
        cuda.recorded[33] = 71
    if not change:
        assert driver.captured(5) == (3, 0)
        return
    with pytest.raises(FlashcoreError, match="void: a call changed the graph's spacers"):
        driver.captured(5)
