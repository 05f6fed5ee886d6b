"""Loads a configuration's cubin and launches it on torch tensors [B, H, S, D] of any strides."""
import ctypes as C

import torch

from build import HERE, parse, shared_bytes

cuda = C.CDLL("libcuda.so.1")


def ok(code: int) -> None:
    if code:
        text = C.c_char_p()
        cuda.cuGetErrorName(code, C.byref(text))
        raise RuntimeError(f"CUDA driver: {text.value}")


class Problem(C.Structure):
    _fields_ = [("row_tiles", C.c_int), ("heads_all", C.c_int), ("group", C.c_int), ("positions", C.c_int),
                ("heads", C.c_int), ("sharing", C.c_int), ("queries", C.c_int), ("keys", C.c_int),
                ("scale_log2e", C.c_float), ("pad", C.c_int),
                ("out_batch", C.c_longlong), ("out_head", C.c_longlong), ("out_row", C.c_longlong)]


def tensor_map(t: torch.Tensor, rows: int) -> C.Array:
    raw = C.create_string_buffer(128 + 64)
    at = (C.addressof(raw) + 63) // 64 * 64
    b, h, s, d = t.shape
    u64, u32 = C.c_uint64, C.c_uint32
    code = cuda.cuTensorMapEncodeTiled(
        C.c_void_p(at), 9 if t.dtype == torch.bfloat16 else 6, 4, C.c_void_p(t.data_ptr()), (u64 * 4)(d, s, h, b),
        (u64 * 3)(t.stride(2) * 2, t.stride(1) * 2, t.stride(0) * 2), (u32 * 4)(64, rows, 1, 1), (u32 * 4)(1, 1, 1, 1),
        0, 3, 3, 0)
    ok(code)
    return raw, at


class Kernel:
    def __init__(self, name: str):
        self.name, self.c = name, parse(name)
        torch.zeros(1, device="cuda")  # makes torch's context the current one
        module, self.function = C.c_void_p(), C.c_void_p()
        ok(cuda.cuModuleLoadData(C.byref(module), (HERE / "build" / f"{name}.cubin").read_bytes()))
        ok(cuda.cuModuleGetFunction(C.byref(self.function), module, b"attention_kernel"))
        self.shared = shared_bytes(self.c)
        ok(cuda.cuFuncSetAttribute(self.function, 8, self.shared))
        self.threads = (self.c["c"] * 4 + self.c["p"]) * 32
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def plan(self, q, k, v, out, lse=None, scale=None, group=None):
        """A function that launches on torch's current stream; maps and arguments are made once."""
        c = self.c
        b, h, s, d = q.shape
        assert d == c["d"] and q.dtype == (torch.bfloat16 if c["bf16"] else torch.float16)
        rows = c["c"] // c["y"] * 64
        row_tiles = -(-s // rows)
        heads = b * h
        if group is None:
            # Heads whose K and V take at most 24 MB; query heads that share them go together.
            each = 2 * k.shape[2] * d * 2 * k.shape[1] // h
            group = max(1, min(heads, (24 << 20) // each)) if c["causal"] else 1
        scale = d ** -0.5 if scale is None else scale
        p = Problem(row_tiles, heads, group, row_tiles * heads, h, h // k.shape[1], s, k.shape[2],
                    scale * 1.4426950408889634, 0, out.stride(0), out.stride(1), out.stride(2))
        maps = [tensor_map(q, 64), tensor_map(k, c["k"]), tensor_map(v, c["k"])]
        o, l = C.c_void_p(out.data_ptr()), C.c_void_p(lse.data_ptr() if lse is not None else 0)
        counters = torch.zeros(2, device="cuda", dtype=torch.int32)
        t = C.c_void_p(counters.data_ptr())
        args = (C.c_void_p * 7)(*[m[1] for m in maps], C.addressof(o), C.addressof(l), C.addressof(t), C.addressof(p))
        units = row_tiles * heads
        if c["P"]:
            units = min(units, self.sms)
        grid = units
        keep = (maps, o, l, t, p, counters, q, k, v, out, lse)

        def launch():
            stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
            ok(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, args, None))
            return keep and None

        return launch
