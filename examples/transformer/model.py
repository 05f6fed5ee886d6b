"""A small transformer with the suite's attention: eager, compiled, on a separate stream, in a CUDA graph; timed.

flashcore build --suite kernels/attention_general --variant attention
python examples/transformer/model.py [BUILD_DIR]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]

ROOT = Path(__file__).resolve().parents[2]
LAYERS, WIDTH, HEADS, KV_HEADS, BATCH, LENGTH = 4, 2048, 16, 4, 2, 2048
#: Largest relative difference (Frobenius) between the model with one attention and with the other: rounding, in fp16.
LIMIT = 3e-3


def load(build: Path) -> None:
    """Registers ``torch.ops.flashcore_attention_general.attention`` from the newest library of `flashcore build`.

    Raises:
        FileNotFoundError: there is none.
    """
    libraries = sorted(build.glob("attention_general/attention-sm_90a-*/operator.so"), key=lambda p: p.stat().st_mtime)
    if not libraries:
        raise FileNotFoundError(
            f"{build}: expected the library of the variant `attention`, found none\n"
            "  hint: flashcore build --suite kernels/attention_general --variant attention, with a Hopper GPU"
        )
    torch.ops.load_library(libraries[-1])  # type: ignore[no-untyped-call]
    # It writes its output and returns nothing, so there is nothing to infer: torch.compile needs no more.
    torch.library.register_fake("flashcore_attention_general::attention", lambda *_: None)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention of fp16 tensors ``[B, H, S, D]`` or views of that shape, k and v with as many heads or fewer. On the
    current stream."""
    # As [B, S, H, D], so that what follows may join the heads without a copy.
    out = torch.empty_like(q.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
    torch.ops.flashcore_attention_general.attention(q, k, v, out, 1 / math.sqrt(q.shape[-1]), int(causal))
    return out


def torch_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """torch's attention, with the backend that torch selects."""
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


class Block(nn.Module):
    """Causal self-attention with grouped heads, and a feed-forward network."""

    def __init__(self, attend: Attention) -> None:
        super().__init__()
        self.attend = attend
        self.depth = WIDTH // HEADS
        self.before = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * self.depth, bias=False)
        self.merge = nn.Linear(WIDTH, WIDTH, bias=False)
        self.between = nn.LayerNorm(WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, S, WIDTH]`` in and out."""
        batch, length, _ = x.shape
        heads = self.project(self.before(x)).view(batch, length, -1, self.depth).transpose(1, 2)
        q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        x = x + self.merge(self.attend(q, k, v, True).transpose(1, 2).reshape(batch, length, WIDTH))
        out: Tensor = x + self.network(self.between(x))
        return out


def model(attend: Attention) -> nn.Module:
    """A model with the same weights for any attention."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        return nn.Sequential(*(Block(attend) for _ in range(LAYERS))).half().eval()


def graph_of(call: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of one call, warmed up and captured on a separate stream, and its output tensor."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            answer = call()
    torch.cuda.current_stream().wait_stream(stream)
    return graph, answer


def milliseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Median of several calls, by events."""
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


@torch.no_grad()
def main(build: Path = ROOT / "build") -> int:
    """Returns 1 if any use of the operator gives another result than torch's attention."""
    load(build)
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.float16)
    plain, ours = model(torch_attention), model(attention)
    compiled = torch.compile(ours, fullgraph=True)
    wanted = plain(x).double()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        streamed = ours(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph, answer = graph_of(lambda: ours(x))
    answer.zero_()
    graph.replay()
    failed = 0
    for name, output in (
        ("eager", ours(x)),
        ("compiled", compiled(x)),
        ("another stream", streamed),
        ("graph", answer),
    ):
        difference = float((output.double() - wanted).norm() / wanted.norm())
        failed += not difference <= LIMIT
        print(f"{name:15} differs by {difference:.1e}{'' if difference <= LIMIT else ', TOO MUCH'}")
    theirs, _ = graph_of(lambda: plain(x))
    print(
        f"{'graph':15} {milliseconds(graph.replay):.3f} ms, with torch's attention {milliseconds(theirs.replay):.3f} ms"
    )
    print(f"{'compiled':15} {milliseconds(lambda: compiled(x)):.3f} ms")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
