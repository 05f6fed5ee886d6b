"""Writes plan.json from configs.txt: what to check and what to time in one call."""
import json
import sys

from build import configs

TAILS = [1, 31, 65, 129, 511, 513, 517, 1000]


def capacity(value):
    d, wr, wk, bn, st, ck, flags = (int(x) for x in value.split(","))
    return ck * st * bn if flags & 16 else 1 << 20, d, wr * 64


def plan(rows, floor=(), stamps=(), tails=TAILS, rounds=30, inner=(50, 40), only=None):
    wanted = {}
    for (B, H, S, D), names in rows:
        for n in names:
            if n.startswith('x_'):
                continue
            wanted.setdefault(n.removesuffix("+p").partition("@")[0], []).append((B, H, S))
    values = {n: v for n, v, _ in configs("configs.txt")}
    check = {}
    for n, shapes in wanted.items():
        cap, d, _ = capacity(values[n])
        checks = [(B, H, S, d, {"repeats": 300}) for B, H, S in dict.fromkeys(shapes)]
        checks += [(1, 3, s, d) for s in tails if s <= cap]
        checks += [(2, 2, min(shapes[0][2], cap), d, {"gain": 6.0})]
        check[n] = checks
    return {"floor": list(floor), "check": check,
            "bench": [(*shape, names, rounds, inner) for shape, names in rows], "stamps": list(stamps)}


if __name__ == "__main__":
    rows = [
        ((1, 8, 512, 64), ["w1f", "w1", "w1fn", "w1fq", "w1fp2", "w1fp3", "w1f64", "w1fd", "w2f", "w2", "w2fp3", "w2f64o", "w1f@120+p",
                           "w1@120+p"]),
        ((1, 8, 256, 64), ["k2w1f", "k2w1", "k4w1f", "k4w1", "k2w1f64", "k2w2f", "w1f", "k2w1f@120+p", "k2w1@120+p"]),
        ((1, 8, 1024, 64), ["r2k2tf", "r2k2t", "r2k2tfp1", "r2k2tfp2", "r2k2tfn", "r2k2tfq", "r2k2tf+p"]),
        ((1, 8, 2048, 64), ["r2t", "r2tp1", "r2tp2", "r2tp3", "r2tp2s6", "r2tp2n", "r2tp2+p"]),
        ((1, 8, 512, 128), ["d2w2f", "d2w2", "d2w2fn", "d2w1f", "d2w2f64o", "d2w2fp3", "d2w2f+p"]),
    ]
    stamps = [(1, 8, 512, 64, "w1f"), (1, 8, 512, 64, "w2f"), (1, 8, 256, 64, "k2w1f"), (1, 8, 1024, 64, "r2k2tf"), (1, 8, 512, 128, "d2w2f")]
    floor = []
    json.dump(plan(rows, floor, stamps), open("plan.json", "w"))
