"""Builds the configurations of configs.txt (NAME: D, row groups, key groups, chunk, stages, key parts, query tiles,
flags [; extra options]) into short.so, or with --stamps into stamped.so. Refuses C75xx warnings, spills, stack."""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

FLAGS = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-O3", "--use_fast_math", "-lineinfo", "-Xptxas",
         "-v", "-Xcompiler", "-fPIC"]


def configs(path, only=None):
    for line in open(path):
        line = line.split("#")[0].strip()
        if line:
            name, rest = line.split(":")
            value, _, extra = rest.partition(";")
            if not only or re.fullmatch(only, name.strip()):
                yield name.strip(), value.strip(), extra.split()


def compile_one(item, folder, extra):
    name, value, own = item
    source, target = f"{folder}/{name}.cu", f"{folder}/{name}.o"
    text = f'#define NAME {name}\n#define CONFIG {value}\n#include "one.inc"\n'
    inputs = ["short_attention.cuh", "ptx.cuh", "wgmma.cuh", "one.inc"]
    if not (os.path.exists(source) and open(source).read() == text):
        open(source, "w").write(text)
    log = f"{folder}/{name}.log"
    newest = max(os.path.getmtime(p) for p in inputs + [source])
    if not (os.path.exists(target) and os.path.getmtime(target) > newest):
        done = subprocess.run(["nvcc", *FLAGS, *extra, *own, "-I.", "-c", source, "-o", target], capture_output=True,
                              text=True)
        open(log, "w").write(done.stdout + done.stderr)
        if done.returncode:
            return name, None, done.stderr[-1500:]
    out = open(log).read()
    used = re.search(r"Used (\d+) registers", out)
    spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", out)
    warnings = sorted(set(re.findall(r"\(C75\d\d\)[^\n]*", out)))
    bad = bool(warnings) or (spills and any(int(x) for x in spills.groups()))
    return name, target, f"{used and used.group(1)} regs, stack/spills {spills and '/'.join(spills.groups())} {' '.join(warnings)}{' BAD' if bad else ''}"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--configs", default="configs.txt")
    ap.add_argument("--only")
    ap.add_argument("--stamps", action="store_true")
    ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    folder = "build_stamps" if a.stamps else "build"
    os.makedirs(folder, exist_ok=True)
    extra = ["-DSTAMPS=1"] if a.stamps else []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        done = list(pool.map(lambda i: compile_one(i, folder, extra), configs(a.configs, a.only)))
    good = []
    for name, target, text in done:
        print(f"{name:16s} {text}")
        if target and "BAD" not in text:
            good.append(target)
    if a.stamps:
        target = "stamped.so"
    else:
        target = "short.so"
        subprocess.run(["nvcc", *FLAGS, "-c", "spacer.cu", "-o", f"{folder}/spacer.o"], check=True, capture_output=True)
        good.append(f"{folder}/spacer.o")
    subprocess.run(["nvcc", "-shared", "-o", target, *good], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
