// out = factor · x, at about 20 us a call, by launchers and kernels that save that time where they think that nobody sees
// it, or that change what the harness measures with.
#include <cuda.h>
#include <dlfcn.h>
#include <flashcore/problem.h>

#include <map>
#include <vector>

enum Way {
  WAY_honest, WAY_stops, WAY_capture, WAY_remembers, WAY_looks, WAY_host,
  WAY_poison, WAY_poison_partly, WAY_copies, WAY_halves, WAY_every_second, WAY_last_calls, WAY_later_edits, WAY_deletes,
  WAY_spacers, WAY_no_spacers, WAY_flushes, WAY_beside, WAY_before_spacers, WAY_events, WAY_first_event, WAY_stream, WAY_interpreter
};
constexpr Way kWay = WAY;
constexpr int kMost = 1 << 16, kSlots = 61;

// What `remembers` and `copies` have seen, and answered, for each output.
__device__ float seen[kSlots][kMost], answers[kSlots][kMost];
__device__ unsigned calls;

__device__ bool idle(const float* x, float* out, float factor, long long i, int turn) {
  const auto slot = reinterpret_cast<unsigned long long>(out) / (1 << 18) % kSlots;
  float& last = seen[slot][i % kMost];
  if (kWay == WAY_stops) return calls > 1000;             // no more, after so many calls
  if (kWay == WAY_looks) return out[i] == x[i] * factor;  // the answer stands there already
  if (kWay == WAY_remembers && last == x[i] && isfinite(out[i])) return true;  // this input, and an answer
  if (kWay == WAY_remembers) last = x[i];
  if (turn < 0) return false;                             // not captured: all of it, for check
  if (kWay == WAY_poison) return isfinite(out[i]);        // an answer stands there
  if (kWay == WAY_poison_partly) return i / 256 % 2 && isfinite(out[i / 256 * 256]);
  if (kWay == WAY_halves) return i / 256 % 2 == turn % 2;
  if (kWay == WAY_every_second) return turn % 2;
  if (kWay == WAY_copies) {
    const bool same = seen[slot][i / 256 * 256] == x[i / 256 * 256];
    __syncthreads();
    if (same) out[i] = answers[slot][i];
    last = x[i], answers[slot][i] = x[i] * factor;
    return same;
  }
  return false;
}

extern "C" __global__ void cheat_kernel(const float* x, float* out, float factor, long long count, int turn) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= count || idle(x, out, factor, i, turn)) return;
  for (const long long start = clock64(); clock64() - start < 40000;) {}
  out[i] = x[i] * factor;
  if (i == 0) atomicAdd(&calls, 1u);
}

// The graph that a stream captures, and what its next node will come after.
struct Captured {
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> after;
  unsigned long long id = 0;
};

template <typename F>
static F driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<F>(dlsym(library, name));
}
#define DRIVER(name, ...) driver<decltype(&name)>(#name)(__VA_ARGS__)

static Captured captured(cudaStream_t stream) {
  Captured made;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  using Info = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*);
  cuuint64_t id = 0;
  const CUgraphNode* after = nullptr;
  size_t count = 0;
  driver<Info>("cuStreamGetCaptureInfo_v2")(stream, &status, &id, &made.graph, &after, &count);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return Captured{};
  made.after.assign(after, after + count);
  made.id = id;
  return made;
}

static std::vector<CUgraphNode> nodes(CUgraph graph) {
  size_t count = 0;
  DRIVER(cuGraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> made(count);
  DRIVER(cuGraphGetNodes, graph, made.data(), &count);
  return made;
}

static CUgraphNodeType kind(CUgraphNode node) {
  CUgraphNodeType made = CU_GRAPH_NODE_TYPE_EMPTY;
  DRIVER(cuGraphNodeGetType, node, &made);
  return made;
}

static void depend(cudaStream_t stream, std::vector<CUgraphNode> after) {
  using Update = CUresult (*)(CUstream, CUgraphNode*, size_t, unsigned);
  driver<Update>("cuStreamUpdateCaptureDependencies")(stream, after.data(), after.size(), 1);  // 1: replace them
}

// Changes the harness's own nodes.
static void change(const Captured& now) {
  for (CUgraphNode node : nodes(now.graph)) {
    if (kind(node) != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    CUDA_KERNEL_NODE_PARAMS made{};
    using Params = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
    if (driver<Params>("cuGraphKernelNodeGetParams_v2")(node, &made) != CUDA_SUCCESS) continue;
    const bool spacer = made.blockDimX == 32 && made.gridDimX > 60, flush = made.blockDimX == 256 && made.gridDimX > 4096;
    unsigned long long clocks = kWay == WAY_no_spacers ? 0 : 1500;
    void* arguments[] = {&clocks, nullptr, nullptr, nullptr};
    for (int i = 1; spacer && i < 4; ++i) arguments[i] = made.kernelParams[i];
    if ((kWay == WAY_spacers || kWay == WAY_no_spacers) && spacer) made.kernelParams = arguments;
    if (kWay == WAY_flushes && flush) made.gridDimX = 1;
    if (spacer || flush) driver<Params>("cuGraphKernelNodeSetParams_v2")(node, &made);
  }
}

static flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  return p.add({.kernel = "cheat_kernel", .grid = dim3(flashcore::ceil_div(s.N, 256)), .block = dim3(256)});
}

static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                          cudaStream_t stream) {
  static int launched = 0, in_graph = 0, in_last_graph = 0;
  static unsigned long long graph = 0;
  static std::map<const void*, int> turns;
  static std::vector<CUgraphNode> launches;
  static cudaStream_t other = nullptr;
  if (kWay == WAY_host && ++launched > 300) return cudaSuccess;  // nothing, after so many calls
  const Captured now = captured(stream);
  if (now.id != graph) {
    if (now.id) in_last_graph = in_graph, in_graph = 0;
    graph = now.id;
    launches.clear();
  }
  in_graph += now.id != 0;
  long long count = s.N;
  if (kWay == WAY_capture && now.graph) count = 0;  // all of it, or a launch for show
  if (kWay == WAY_last_calls && now.graph && in_graph + 4 <= in_last_graph) count = 0;  // nobody looks at these
  if (kWay == WAY_interpreter) {
    static const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
    if (run && ++launched == 1) {
      const int state = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"))();
      run("from flashcore.stages.bench.timing import Timed\n"
          "for name in ('isolated', 'cold', 'back_to_back', 'eager'):\n"
          "    setattr(Timed, name, lambda self, of=getattr(Timed, name): of(self) / 2)\n"
          "Timed.each = lambda self, *a, of=Timed.each, **k: [x / 2 for x in of(self, *a, **k)]\n");
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"))(state);
    }
  }
  if (now.graph && kWay >= WAY_spacers && kWay <= WAY_flushes) change(now);
  const std::vector<CUgraphNode> before = now.after;
  if (now.graph && (kWay == WAY_before_spacers || kWay == WAY_first_event) && before.size() == 1) {
    // Starts with what comes before it: the spacer, or the first event.
    if (kWay == WAY_before_spacers || kind(before[0]) == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      CUgraphNode earlier[4];
      size_t ways = 4;
      using Before = CUresult (*)(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, size_t*);
      CUgraphEdgeData data[4];
      driver<Before>("cuGraphNodeGetDependencies_v2")(before[0], earlier, data, &ways);
      if (ways == 1) depend(stream, {earlier[0]});
    }
  }
  if (kWay == WAY_stream && graph && !now.graph) {  // bench has captured calls, so this one is eager
    if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    return flashcore::run(p.launches[0], cheat_kernel, other, static_cast<const float*>(a.x), static_cast<float*>(a.out),
                          static_cast<float>(a.factor), count, 0);
  }
  const cudaError_t error =
      flashcore::run(p.launches[0], cheat_kernel, stream, static_cast<const float*>(a.x), static_cast<float*>(a.out),
                     static_cast<float>(a.factor), count, now.graph ? turns[a.out]++ : -1);
  if (!now.graph) return error;
  const std::vector<CUgraphNode> made = captured(stream).after;
  if (kWay == WAY_beside) depend(stream, before);  // the next spacer does not wait
  if (kWay == WAY_before_spacers || kWay == WAY_first_event) {
    std::vector<CUgraphNode> both = before;
    both.insert(both.end(), made.begin(), made.end());
    depend(stream, both);
  }
  if (kWay == WAY_events && before.size() == 1 && kind(before[0]) == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    CUevent event = nullptr;
    DRIVER(cuGraphEventRecordNodeGetEvent, before[0], &event);
    DRIVER(cuEventRecordWithFlags, event, stream, CU_EVENT_RECORD_EXTERNAL);  // as if it began now
  }
  launches.insert(launches.end(), made.begin(), made.end());
  if ((kWay == WAY_later_edits || kWay == WAY_deletes) && launches.size() > 4) {  // a later call writes the same outputs
    CUgraphNode earlier = launches[launches.size() - 5];
    CUDA_KERNEL_NODE_PARAMS params{};
    using Params = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
    driver<Params>("cuGraphKernelNodeGetParams_v2")(earlier, &params);
    long long none = 0;
    void* arguments[5];
    for (int i = 0; i < 5; ++i) arguments[i] = params.kernelParams[i];
    arguments[3] = &none;
    params.kernelParams = arguments;
    if (kWay == WAY_later_edits) driver<Params>("cuGraphKernelNodeSetParams_v2")(earlier, &params);
    if (kWay == WAY_deletes) DRIVER(cuGraphDestroyNode, earlier);
  }
  return error;
}

FLASHCORE_VARIANT(plan, launch)
