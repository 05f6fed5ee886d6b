"""As `sitecustomize.py` on PYTHONPATH of `flashcore bench`: probes before and after the samples of each mode."""
import os, sys
def patch(mod):
    old = mod.sample
    import statistics as st
    out = open('/tmp/floor2/%d' % os.getpid(), 'a', buffering=1)
    def med(f, n=9):
        return '%.3f' % st.median(f() for _ in range(n))
    def probe(tag, ready, mode):
        import torch
        for label in ('(empty)', 'attention', 'cudnn_general'):
            t = ready.get(label)
            if t is None: continue
            timer = t._timer
            first = '%.3f' % t.back_to_back()
            again = med(t.back_to_back)
            g, _ = timer.capture(t._call, t.launches)
            def new(): return t._between(g.replay, cover=100_000) / t.launches
            n1 = '%.3f' % new(); n = med(new)
            big = torch.empty(1 << 27, dtype=torch.uint8, device='cuda'); big.fill_(1); torch.cuda.synchronize()
            ev = '%.3f' % new(); ev_old = None
            big.fill_(2); torch.cuda.synchronize(); ev_old = '%.3f' % t.back_to_back()
            other = [x for l, x in ready.items() if l != label][0]
            mixed = []
            for _ in range(9):
                other.back_to_back(); mixed.append(new())
            mo = []
            for _ in range(9):
                other.back_to_back(); mo.append(t.back_to_back())
            out.write('%s %s %s n=%d | old first %s again %s | new first %s again %s | flushed new %s old %s | mixed new %.3f old %.3f\n' % (tag, mode, label, t.launches, first, again, n1, n, ev, ev_old, st.median(mixed), st.median(mo)))
            del g, big
    def sample(ready, mode, *a, **k):
        if mode != 'eager' and '(empty)' in ready: probe('before', ready, mode)
        r = old(ready, mode, *a, **k)
        if '(empty)' in r:
            out.write('SAMPLED %s %s\n' % (mode, {l: '%.3f' % st.median(x) for l, x in r.items()}))
            probe('after', ready, mode)
        return r
    mod.sample = sample
def install():
    import importlib.util
    class F:
        def find_spec(self, name, path, target=None):
            if name != 'flashcore.stages.bench.interleave': return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            old = spec.loader.exec_module
            def ex(mod): old(mod); patch(mod)
            spec.loader.exec_module = ex
            return spec
    sys.meta_path.insert(0, F())
if os.path.isdir('/tmp/floor2'): install()
