"""The CUDA driver calls that timing needs and torch lacks, through ctypes on ``libcuda.so.1``.

Kernels that spin (the spacer; with 0 cycles, the empty kernel) and that flush L2; events inside a graph; and what a
captured graph holds. The kernels are PTX that the driver compiles for the present GPU, so no compiler is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Iterator
from graphlib import TopologicalSorter
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError

_KERNELS = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 cycles, .param .u64 places, .param .u64 seen, .param .u64 count)
{
    .reg .b64 %rd<9>;
    .reg .b32 %r<5>;
    .reg .pred %p;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
    ld.param.u64 %rd5, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r1, %r1, %r2, %r3;
    cvt.u64.u32 %rd6, %r1;
    setp.ge.u64 %p, %rd6, %rd5;
    @%p bra again;
    ld.param.u64 %rd7, [places];
    ld.param.u64 %rd8, [seen];
    add.s64 %rd8, %rd8, %rd6;
    shl.b64 %rd6, %rd6, 3;
    add.s64 %rd7, %rd7, %rd6;
    ld.global.u64 %rd7, [%rd7];
    ld.global.u8 %r1, [%rd7];
    st.global.u8 [%rd8], %r1;
    mov.u32 %r2, 255;
    st.global.u8 [%rd7], %r2;
again:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p, %rd4, %rd1;
    @%p bra again;
    ret;
}
.visible .entry flush(.param .u64 memory, .param .u64 value)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<5>;
    ld.param.u64 %rd1, [memory];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r2, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r2, 16;
    add.s64 %rd1, %rd1, %rd2;
    st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};
    ret;
}
"""
#: Kernel → the number of its parameters, all 64 bits.
_PARAMETERS = {"spin": 4, "flush": 2}
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: the record becomes a node of the graph
_KERNEL_NODE, _COPY_NODE, _CHILD_GRAPH_NODE, _EVENT_NODE = 0, 1, 4, 7  # CUgraphNodeType


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("others", ctypes.c_void_p * 3),
    )


def barriers(nodes: Collection[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes that all others come before or after, in order."""
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for first, second in edges:
        before[second].append(first)
    sorter = TopologicalSorter(before)
    sorter.prepare()
    ends: set[int] = set()  # of the nodes so far, those that none of them comes after
    made: list[int] = []
    while ready := sorter.get_ready():
        ends.difference_update(*(before[node] for node in ready))
        if len(ready) == 1 and not ends:
            made += ready
        ends.update(ready)
        sorter.done(*ready)
    return made


class Driver:
    """The driver, in the current context, which torch created. ``stream`` is a stream's handle as an integer.

    Raises:
        CapabilityError: the driver reports an error; any method may raise it.
    """

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._kernels = {name: self.kernel(_KERNELS, name.encode()) for name in _PARAMETERS}
        #: What was enqueued here since a capture began, as :meth:`captured` must find it.
        self.enqueued: list[tuple[Any, ...]] = []

    def kernel(self, ptx: bytes, name: bytes) -> ctypes.c_void_p:
        """The kernel ``name`` of this PTX, compiled for this GPU."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
        self.ask("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name))
        return function

    def ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise CapabilityError(
                f"{name}: CUDA driver error {code}", "update the driver; check torch.cuda.is_available()"
            )

    def launch(self, name: str, stream: int, blocks: int, threads: int, *values: int) -> None:
        """Enqueues a kernel of ours.

        ``spin``: each warp spins until so many SM cycles have passed. It has no programmatic trigger, so the next
        kernel cannot start early. Meanwhile ``values[3]`` threads each copy a byte, whose address is at ``values[1]``,
        to ``values[2]``, and set its bits. ``flush``: each thread stores a value to 16 bytes of memory.
        """
        words = [ctypes.c_uint64(value) for value in values]
        at = (ctypes.c_void_p * len(words))(*map(ctypes.addressof, words))
        sizes = (*(blocks, 1, 1), *(threads, 1, 1), 0)
        self.ask("cuLaunchKernel", self._kernels[name], *sizes, ctypes.c_void_p(stream), at, None)
        self.enqueued.append((name, blocks, threads, *values))

    def event(self) -> ctypes.c_void_p:
        """An event that can be recorded inside a graph and read after each replay."""
        event = ctypes.c_void_p()
        self.ask("cuEventCreate", ctypes.byref(event), 0)
        return event

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        self.ask("cuEventRecordWithFlags", event, ctypes.c_void_p(stream), _EXTERNAL)
        self.enqueued.append(("event", event.value))

    def elapsed_us(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self.ask("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1000.0

    def captured(self, stream: int) -> tuple[int, int]:
        """The numbers of kernel and copy nodes in the graph that ``stream`` is capturing.

        Raises:
            FlashcoreError: what was enqueued here is not in it as it was, or not between what came before and after.
        """
        status, identity, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
        graph, after = ctypes.c_void_p(), ctypes.c_void_p()
        answers = (status, identity, graph, after, count)
        self.ask("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), *map(ctypes.byref, answers))
        if not graph.value:
            return 0, 0
        (nodes,) = self._listed("cuGraphGetNodes", graph.value, 1)
        if self.enqueued:
            starts, ends, _ = self._listed("cuGraphGetEdges_v2", graph.value, 3)  # the third: 8 bytes of data on each
            order = barriers(nodes, zip(starts, ends, strict=True))
            if [step for node in order if (step := self._step(node))] != self.enqueued:
                raise FlashcoreError("void: a call changed the graph's spacers, flushes or events, or ran beside them")
        kinds = list(self._kinds(nodes))
        return kinds.count(_KERNEL_NODE), kinds.count(_COPY_NODE)

    def _listed(self, name: str, graph: int, lists: int) -> list[list[int]]:
        count = ctypes.c_size_t()
        self.ask(name, ctypes.c_void_p(graph), *[None] * lists, ctypes.byref(count))
        arrays = [(ctypes.c_void_p * count.value)() for _ in range(lists)]
        if count.value:
            self.ask(name, ctypes.c_void_p(graph), *arrays, ctypes.byref(count))
        return [[each or 0 for each in array] for array in arrays]

    def _of(self, name: str, node: int, made: Any) -> Any:
        self.ask(name, ctypes.c_void_p(node), ctypes.byref(made))
        return made

    def _step(self, node: int) -> tuple[Any, ...] | None:
        """What this node does, if it is one of ours."""
        kind = self._of("cuGraphNodeGetType", node, ctypes.c_int()).value
        if kind == _EVENT_NODE:
            return ("event", self._of("cuGraphEventRecordNodeGetEvent", node, ctypes.c_void_p()).value)
        if kind == _KERNEL_NODE:
            made = self._of("cuGraphKernelNodeGetParams_v2", node, _KernelNode())
            for name, function in self._kernels.items():
                if made.function == function.value:
                    at = made.arguments[: _PARAMETERS[name]]
                    return (name, made.grid[0], made.block[0], *(ctypes.c_uint64.from_address(a).value for a in at))
        return None

    def _kinds(self, nodes: Collection[int]) -> Iterator[int]:
        for node in nodes:
            kind = self._of("cuGraphNodeGetType", node, ctypes.c_int()).value
            if kind == _CHILD_GRAPH_NODE:
                inner = self._of("cuGraphChildGraphNodeGetGraph", node, ctypes.c_void_p()).value
                yield from self._kinds(*self._listed("cuGraphGetNodes", inner, 1))
            else:
                yield kind
