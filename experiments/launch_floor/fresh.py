"""Graphs of empty launches in a process that does nothing else: us a launch, and (us that the host took to enqueue)."""
import statistics, sys, time
import torch
from flashcore.stages.bench import timing
from flashcore.stages.bench.timing import CudaTimer
t = CudaTimer()
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
def once(g, cover):
    torch.cuda._sleep(cover); start.record(); h=time.perf_counter(); g.replay(); h=time.perf_counter()-h; end.record(); end.synchronize()
    return start.elapsed_time(end)*1e3, h*1e6
def show(name, gs, n, cover):
    out=[]
    for g in gs:
        x=[once(g,cover) for _ in range(9)]
        out.append('%.3f(%d)'%(statistics.median(a for a,_ in x)/n, statistics.median(b for _,b in x)))
    print(name, 'cover', cover, ' '.join(out), flush=True)
for n in (500, 100, 40):
    gs=[t.capture(lambda i: t.spin(0), n)[0] for _ in range(10)]
    for cover in (100_000, 400_000, 2_000_000, 8_000_000): show('n=%d'%n, gs, n, cover)
    del gs
# with other graphs alive and memory moved about
keep=[t.capture(lambda i: t.spin(0), 500)[0] for _ in range(60)]
x=[torch.empty(1<<22,device='cuda') for _ in range(50)]; del x
torch.cuda.empty_cache()
gs=[t.capture(lambda i: t.spin(0), 500)[0] for _ in range(10)]
for cover in (100_000, 2_000_000): show('after 60', gs, 500, cover)
del keep[::2]; torch.cuda.empty_cache()
gs=[t.capture(lambda i: t.spin(0), 500)[0] for _ in range(10)]
for cover in (100_000, 2_000_000): show('after holes', gs, 500, cover)
# kernels with memory: torch's copy of a few KB
a=torch.ones(4096,device='cuda'); b=torch.empty_like(a)
gs=[t.capture(lambda i: b.copy_(a), 500)[0] for _ in range(10)]
for cover in (100_000, 2_000_000): show('copy', gs, 500, cover)
for c in (2000, 8000):
    gs=[t.capture(lambda i: t.spin(c, 132), 200)[0] for _ in range(8)]
    for cover in (100_000, 2_000_000): show('spin %d'%c, gs, 200, cover)
