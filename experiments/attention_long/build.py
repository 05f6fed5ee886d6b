"""Builds configurations of attention_long.cu into build/NAME.cubin, at most two at a time.

A name spells the configuration: d64_k128_c3_s2_p4_o1_t1_P0_z1_e0_y1_j0[_causal][_bf16][_lse].
"""
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
DEFAULT = dict(d=64, k=128, c=2, s=2, p=4, o=1, t=1, P=0, z=1, e=0, y=1, j=0, causal=0, bf16=0, lse=0)
MACRO = dict(d="HEAD_DIM", k="KEYS", c="CONSUMERS", s="STAGES", p="PRODUCER_WARPS", o="OVERLAP", t="PINGPONG",
             P="PERSISTENT", z="LAZY", e="POLYNOMIAL", y="KEY_GROUPS", j="JOINT", causal="CAUSAL",
             bf16="ELEMENT_BF16", lse="WRITE_LSE")


def parse(name: str) -> dict:
    config = dict(DEFAULT)
    for part in name.split("_"):
        if part in ("causal", "bf16", "lse"):
            config[part] = 1
        else:
            key, value = re.fullmatch(r"([a-zA-Z])(\d+)", part).groups()
            assert key in config, part
            config[key] = int(value)
    return config


def shared_bytes(c: dict) -> int:
    rows = c["c"] // c["y"]
    parts = (c["y"] - 1) * rows * 128 * (c["d"] // 2 + 4) * 4
    return rows * 64 * c["d"] * 2 + 2 * c["s"] * c["k"] * c["d"] * 2 + parts + (4 * c["s"] + 2 * rows + 4) * 8 + 8


def build(name: str) -> str:
    config = parse(name)
    out = HERE / "build" / f"{name}.cubin"
    newest = max(p.stat().st_mtime for p in [HERE / "attention_long.cu", *HERE.glob("include/**/*.cuh")])
    out.parent.mkdir(exist_ok=True)
    log = out.with_suffix(".log")
    if not (out.exists() and out.stat().st_mtime > newest):
        flags = [f"-D{MACRO[key]}={value}" for key, value in config.items()]
        done = subprocess.run(
            ["nvcc", "-gencode", "arch=compute_90a,code=sm_90a", "-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-v",
             "-std=c++17", "-cubin", "-I", HERE / "include", *flags, "-o", out, HERE / "attention_long.cu"],
            capture_output=True, text=True)
        log.write_text(done.stderr + done.stdout)
        if done.returncode:
            out.unlink(missing_ok=True)
            return f"{name}: FAILED\n{done.stderr[-3000:]}"
    text = log.read_text()
    used = re.search(r"Used (\d+) registers", text)
    spill = re.search(r"(\d+) bytes spill stores", text)
    notes = [line for line in text.splitlines() if re.search(r"C75\d\d|warning", line)]
    return f"{name}: {used and used[1]} registers, {spill and spill[1]} spilled, smem {shared_bytes(config)}" + "".join("\n  " + n[:200] for n in notes)


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(build, sys.argv[1:]):
            print(line, flush=True)
