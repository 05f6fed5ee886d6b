"""prof.py NAME B H S: launches a configuration three times, for a profiler."""
import sys
import torch
from driver import Kernel

name, b, h, s = sys.argv[1], *map(int, sys.argv[2:5])
kernel = Kernel(name)
d = kernel.c["d"]
q, k, v = (torch.randn(b, h, s, d, device="cuda").to(torch.bfloat16 if kernel.c["bf16"] else torch.float16) for _ in range(3))
out = torch.empty_like(q)
launch = kernel.plan(q, k, v, out, torch.empty(b, h, s, device="cuda"))
for _ in range(3):
    launch()
torch.cuda.synchronize()
