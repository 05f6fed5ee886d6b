"""150 empty launches in a graph, warm and after L2 was flushed: before and after the reset of persisting lines."""
import statistics
import torch
from flashcore.stages.bench.timing import CudaTimer
t = CudaTimer(); flush = torch.empty(1 << 27, dtype=torch.uint8, device='cuda')
g, _ = t.capture(lambda i: t.spin(0), 150)
a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
def once():
    torch.cuda._sleep(100_000); a.record(); g.replay(); b.record(); b.synchronize(); return a.elapsed_time(b) * 1e3 / 150
def show(tag):
    warm = statistics.median(once() for _ in range(30)); cold = []
    for i in range(30): flush.fill_(i); cold.append(once())
    print(tag, 'warm %.3f flushed %.3f' % (warm, statistics.median(cold)), flush=True)
show('before'); t.driver.reset_persisting_l2(); show('asked for the limit'); t.driver.ask('cuCtxResetPersistingL2Cache'); show('reset once')
g2 = g; g, _ = t.capture(lambda i: t.spin(0), 150); show('new graph'); 
