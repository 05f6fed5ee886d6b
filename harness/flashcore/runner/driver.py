"""The CUDA driver calls that timing needs and torch lacks, through ctypes on ``libcuda.so.1``.

Kernels that spin (the spacer; with 0 cycles, the empty kernel) and that flush L2; events inside a graph; and how many
kernels and copies a captured graph has. The kernels are PTX that the driver compiles for the present GPU, so no
compiler is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from flashcore.errors import CapabilityError

_KERNELS = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .b64 %rd<5>;
    .reg .pred %p;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
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
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: the record becomes a node of the graph
_KERNEL_NODE, _COPY_NODE, _CHILD_GRAPH_NODE = 0, 1, 4  # CUgraphNodeType


class Driver:
    """The driver, in the current context, which torch created. ``stream`` is a stream's handle as an integer.

    Raises:
        CapabilityError: the driver reports an error; any method may raise it.
    """

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._kernels = {name: self.kernel(_KERNELS, name.encode()) for name in ("spin", "flush")}

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
        """Enqueues a kernel of ours with these 64-bit arguments.

        ``spin``: each warp spins until so many SM cycles have passed. It has no programmatic trigger, so the next
        kernel cannot start early. ``flush``: each thread stores a value to 16 bytes of memory.
        """
        words = [ctypes.c_uint64(value) for value in values]
        at = (ctypes.c_void_p * len(words))(*map(ctypes.addressof, words))
        sizes = (*(blocks, 1, 1), *(threads, 1, 1), 0)
        self.ask("cuLaunchKernel", self._kernels[name], *sizes, ctypes.c_void_p(stream), at, None)

    def event(self) -> ctypes.c_void_p:
        """An event that can be recorded inside a graph and read after each replay."""
        event = ctypes.c_void_p()
        self.ask("cuEventCreate", ctypes.byref(event), 0)
        return event

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        self.ask("cuEventRecordWithFlags", event, ctypes.c_void_p(stream), _EXTERNAL)

    def elapsed_us(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self.ask("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1000.0

    def captured(self, stream: int) -> tuple[int, int]:
        """The numbers of kernel and copy nodes in the graph that ``stream`` is capturing."""
        status, identity, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
        graph, after = ctypes.c_void_p(), ctypes.c_void_p()
        answers = (status, identity, graph, after, count)
        self.ask("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), *map(ctypes.byref, answers))
        if not graph.value:
            return 0, 0
        kinds = list(self._kinds(graph.value))
        return kinds.count(_KERNEL_NODE), kinds.count(_COPY_NODE)

    def _kinds(self, graph: int) -> Iterator[int]:
        """The kind of each node of a graph, and of the graphs inside it."""
        count = ctypes.c_size_t()
        self.ask("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        if count.value:
            self.ask("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
        for node in nodes:
            kind, inner = ctypes.c_int(), ctypes.c_void_p()
            self.ask("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            if kind.value == _CHILD_GRAPH_NODE:
                self.ask("cuGraphChildGraphNodeGetGraph", ctypes.c_void_p(node), ctypes.byref(inner))
                yield from self._kinds(inner.value or 0)
            else:
                yield kind.value
