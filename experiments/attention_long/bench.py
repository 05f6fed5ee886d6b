"""Checks configurations against fp64, then times them and cuDNN in turns by graph replay.

bench.py PLAN.json RESULTS.json; mkplan.py writes plans.
"""
import json
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from build import parse
from driver import Kernel

torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False


def inputs(b, h, s, d, dtype, kv=None, scale=1.0):
    g = torch.Generator("cuda").manual_seed(b * 1000003 + h * 1009 + s * 7 + d)
    make = lambda n: (torch.randn(b, n, s, d, device="cuda", generator=g) * scale).to(dtype)
    return make(h), make(kv or h), make(kv or h)


def reference(q, k, v, causal):
    """fp64, and the same with weights rounded to the inputs' type and the output too: what an ideal kernel gives."""
    b, h, s, d = q.shape
    r = h // k.shape[1]
    exact, ideal, lse = [], [], []
    for i in range(b):
        for j in range(h):
            x = (q[i, j].double() @ k[i, j // r].double().T) * d ** -0.5
            if causal:
                x = x.masked_fill(torch.ones(s, s, dtype=torch.bool, device="cuda").triu(1), float("-inf"))
            m = x.max(-1, keepdim=True).values
            p = (x - m).exp()
            l = p.sum(-1, keepdim=True)
            exact.append(p @ v[i, j // r].double() / l)
            ideal.append((p.to(q.dtype).double() @ v[i, j // r].double() / l).to(q.dtype).double())
            lse.append((m + l.log())[:, 0])
    stack = lambda t: torch.stack(t).reshape(b, h, *t[0].shape)
    return stack(exact), stack(ideal), stack(lse)


def frobenius(x, ref):
    return ((x.double() - ref).norm() / ref.norm()).item()


REFERENCES = {}


def check(name, shapes, results):
    c = parse(name)
    dtype = torch.bfloat16 if c["bf16"] else torch.float16
    kernel = Kernel(name)
    worst, bad = 0.0, []
    for (b, h, kv, s, scale) in shapes:
        key = (b, h, kv, s, scale, c["d"], c["causal"], dtype)
        if key not in REFERENCES:
            t = inputs(b, h, s, c["d"], dtype, kv, scale)
            REFERENCES[key] = (t, reference(*t, c["causal"]))
        (q, k, v), (exact, ideal, lse_ref) = REFERENCES[key]
        out = torch.full((b * h * s * c["d"] + 4096,), float("nan"), device="cuda", dtype=dtype)
        o = out[:b * h * s * c["d"]].view(b, h, s, c["d"])
        lse = torch.full((b, h, s), float("nan"), device="cuda")
        launch = kernel.plan(q, k, v, o, lse)
        launch()
        torch.cuda.synchronize()
        first = o.clone()
        ratio = frobenius(first, exact) / max(frobenius(ideal, exact), 1e-4)
        top = ((first.double() - exact).abs().max() / (ideal - exact).abs().max().clamp(min=1e-4)).item()
        same = True
        for _ in range(5):
            o.fill_(float("nan"))
            launch()
            same &= bool(torch.equal(o, first))
        guard = bool(out[b * h * s * c["d"]:].isnan().all())
        right = ratio <= 1.5 and top <= 2.5 and same and guard
        if c["lse"]:
            right &= bool(((lse.double() - lse_ref).abs().max() < 1e-4))
        worst = max(worst, ratio) if ratio == ratio else float("nan")
        if not right:
            bad.append([b, h, kv, s, scale, round(ratio, 3), round(top, 3), same, guard])
    results["check"][name] = {"worst": worst, "bad": bad}
    print(f"check {name}: worst {worst:.3f} {'BAD ' + str(bad) if bad else 'right'}", flush=True)
    return not bad


def strided(name, results):
    """[B, S, H, D] tensors given as [B, H, S, D] views, and 1,000 repeats that must be bit-equal."""
    c = parse(name)
    dtype = torch.bfloat16 if c["bf16"] else torch.float16
    kernel = Kernel(name)
    q, k, v = (torch.randn(2, 333, n, c["d"], device="cuda").to(dtype).transpose(1, 2) for n in (4, 2, 2))
    out = torch.full((2, 333, 4, c["d"]), float("nan"), device="cuda", dtype=dtype).transpose(1, 2)
    launch = kernel.plan(q, k, v, out, torch.empty(2, 4, 333, device="cuda"))
    launch()
    exact, ideal, _ = reference(q, k, v, c["causal"])
    ratio = frobenius(out, exact) / frobenius(ideal, exact)
    first, same = out.clone(), True
    for _ in range(1000):
        launch()
        same &= bool(torch.equal(out, first))
    results["strided"][name] = {"ratio": ratio, "bit_equal_1000": same}
    print(f"strided and 1,000 repeats {name}: {ratio:.3f} {'bit-equal' if same else 'DIFFERENT'}", flush=True)


def graph_of(call, repeats):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                call()
    torch.cuda.synchronize()
    return graph


def once(graph, repeats):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    graph.replay()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) * 1e3 / repeats


def timing(shape, names, results, rounds=9, window_us=10000):
    b, h, kv, s, d, causal, dtype = shape
    q, k, v = inputs(b, h, s, d, dtype, kv)
    flops = 4 * b * h * s * s * d / (2 if causal else 1)
    sdpa = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != h)
    graphs = {}
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        sdpa()
        torch.cuda.synchronize()
        t = once(graph_of(sdpa, 4), 4)
        repeats = max(2, min(400, int(window_us / t)))
        graphs["cudnn"] = graph_of(sdpa, repeats)
        expected = sdpa()
    out = torch.empty_like(q)
    kernels = []
    for name in names:
        kernel = Kernel(name)
        out.fill_(float("nan"))
        launch = kernel.plan(q, k, v, out, torch.empty(b, h, s, device="cuda") if kernel.c["lse"] else None)
        launch()
        torch.cuda.synchronize()
        difference = frobenius(out, expected.double())
        if not difference < (8e-3 if dtype == torch.bfloat16 else 1e-3):
            print(f"  {name}: DIFFERS from cuDNN by {difference:.2e}", flush=True)
            continue
        graphs[name] = graph_of(launch, repeats)
        kernels.append((kernel, launch))
    times = {name: [] for name in graphs}
    for g in graphs.values():
        g.replay()
    order = list(graphs)
    for _ in range(rounds):
        # The chip's power limit makes what follows a hot kernel slower: neighbours change from round to round.
        random.shuffle(order)
        for name in order:
            times[name].append(once(graphs[name], repeats))
    middle = {name: sorted(t)[len(t) // 2] for name, t in times.items()}
    key = f"{b},{h},{s},{d}" + (f" kv{kv}" if kv != h else "") + (" causal" if causal else "") + (" bf16" if dtype == torch.bfloat16 else "")
    results["time"][key] = {name: {"us": middle[name], "all": times[name], "ratio": middle[name] / middle["cudnn"],
                                   "tflops": flops / middle[name] / 1e6} for name in middle}
    print(f"{key}  ({repeats} a graph)")
    for name in sorted(middle, key=middle.get):
        spread = (max(times[name]) - min(times[name])) / middle[name]
        print(f"  {middle[name]:9.2f} us  {middle[name] / middle['cudnn']:.3f}  {flops / middle[name] / 1e6:6.1f} TFLOP/s  spread {spread:.3f}  {name}", flush=True)


def main():
    plan = json.loads(open(sys.argv[1]).read())
    results = {"check": {}, "strided": {}, "time": {}, "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}
    start = time.time()
    half, bf16 = torch.float16, torch.bfloat16
    good = set()
    shapes = [tuple(s) for s in plan.get("check_shapes", [[1, 2, 2, 512, 1], [2, 4, 2, 517, 1], [1, 2, 1, 1000, 3], [1, 2, 2, 517, 8], [1, 2, 2, 2049, 1], [1, 1, 1, 1, 1], [1, 2, 2, 63, 1], [1, 1, 1, 129, 1]])]
    for name in plan["check"]:
        if check(name, shapes, results):
            good.add(name)
        json.dump(results, open(sys.argv[2], "w"))
    for name in plan.get("repeats", []):
        strided(name, results)
    print(f"{time.time() - start:.1f} s", flush=True)
    for shape, names in plan["time"]:
        b, h, kv, s, d, causal, dtype = shape
        timing((b, h, kv, s, d, bool(causal), bf16 if dtype == "bf16" else half),
               [n for n in names if n in good or not plan["check"]], results, plan.get("rounds", 9), plan.get("window", 10000))
        json.dump(results, open(sys.argv[2], "w"))
    print(f"{time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
