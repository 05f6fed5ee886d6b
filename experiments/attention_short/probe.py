"""Arrival times of tiles out of L2, by way, number of blocks, box, order; prints medians and maxima over blocks."""
import ctypes
import json
import os

import torch

lib = ctypes.CDLL("./probe.so")
P = ctypes.c_void_p
data = torch.randn(48 << 20, device="cuda").half()
out = torch.zeros(256 * 33, dtype=torch.int32, device="cuda")
log = open(os.environ.get("OUT", ".") + "/probe.jsonl", "w")


def run(text, blocks=128, rows=64, chunks=8, sharing=16, rotate=0, way=0, warps=1, swizzle=1, promotion=2):
    for _ in range(6):
        code = lib.probe(P(data.data_ptr()), P(out.data_ptr()), blocks, rows, chunks, sharing, rotate, way, warps, swizzle,
                         promotion, P(torch.cuda.current_stream().cuda_stream))
        assert code == 0, (text, code)
    torch.cuda.synchronize()
    t = out.view(256, 33)[:blocks].cpu().float()
    med = [int(x) for x in t[:, :chunks].median(0).values]
    top = [int(x) for x in t[:, :chunks].amax(0)]
    rate = rows * 128 * (chunks - 1) / max(1, med[-1] - med[0])
    print(f"{text:46s} issue {int(t[:, 32].median()):5d} first {med[0]:5d} last {med[-1]:5d} (max {top[-1]:5d}) {rate:5.1f} B/clk")
    log.write(json.dumps({"text": text, "blocks": blocks, "rows": rows, "chunks": chunks, "sharing": sharing, "way": way,
                          "median": med, "max": top}) + "\n")


run("warm up")
for blocks in (1, 16, 32, 64, 128):
    run(f"tensor 64 rows x 16, {blocks} blocks", blocks=blocks, chunks=16)
run("tensor 128 rows x 8", rows=128)
run("tensor 256 rows x 4", rows=256, chunks=4)
run("tensor 32 rows x 32", rows=32, chunks=32)
run("rotated 64 x 16", chunks=16, rotate=1)
run("rotated 128 x 8", rows=128, rotate=1)
run("each block its own, 64 x 16", chunks=16, sharing=1)
run("8 blocks share", chunks=16, sharing=8)
run("4 blocks share", chunks=16, sharing=4)
run("all blocks share", chunks=16, sharing=128)
run("promotion none", chunks=16, promotion=0)
run("promotion 128", chunks=16, promotion=1)
run("no swizzle", chunks=16, swizzle=0)
run("4 warps ask", chunks=16, warps=4)
run("4 warps ask, 128 rows", chunks=8, rows=128, warps=4)
run("multicast, 64 x 16", chunks=16, way=1)
run("multicast, 128 x 8", rows=128, way=1)
run("multicast, 128 x 8, 4 warps", rows=128, way=1, warps=4)
run("multicast, 128 x 8, rotated", rows=128, way=1, rotate=1)
run("multicast 32 blocks", rows=128, way=1, blocks=32)
run("multicast 64 blocks", rows=128, way=1, blocks=64)
run("bulk 8 KB x 16", chunks=16, way=2)
run("bulk 16 KB x 8", rows=128, way=2)
run("bulk 4 KB x 32", rows=32, chunks=32, way=2)
run("cp.async 64 x 16", chunks=16, way=3)
run("cp.async own data", chunks=16, way=3, sharing=1)
run("cp.async 32 blocks", chunks=16, way=3, blocks=32)
