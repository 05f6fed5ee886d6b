// A stand-in for CUDA's driver: its memory is the host's, its clock a counter, and each kernel that runs is a line of
// LIBCUDA_LOG: name, grid, block, shared memory, attributes, and the bytes of each parameter. It is compiled with cuda.h,
// so a caller with other layouts does not work with it.
//
//   LIBCUDA_PARAMETERS=8,8,4  the bytes of each parameter of every kernel that is loaded from a cubin
//   LIBCUDA_FAILS=NAME[:N]    the N-th call of NAME (the first, if not given) fails with CUDA_ERROR_ILLEGAL_ADDRESS
//   LIBCUDA_HANGS=NAME        NAME does not return
//   LIBCUDA_MEMORY=BYTES      the largest allocation (1 TiB, if not given)
//
// A kernel with "copy" in its name copies as many bytes as its third parameter says from the first to the second; one with
// "inc" adds one to each of those of the second. They take 3 us (2000 with "slow" in the name, 1 with "keep" if the first
// bytes are those of an earlier call of this process), a spin or stamp 1 us for 2000 clocks (0.5 us without), a flush 10. One
// with "forge" moves the time of the last event by 2 us. A copy from the host ends when the default stream is
// next used or waited for, as the driver's may. One with "spy" takes 2 us less if its input's first bytes are anywhere else,
// one with "stale" if its answer is in its output already. One with "odd" copies in every second call.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#undef cuEventElapsedTime  // the first of its versions is asked for

enum { most_nodes = 1 << 16, most_parameters = 64 };
typedef struct {
  char name[64];
  int count;
  size_t sizes[most_parameters];
  int shared, limit;
} Kernel;
typedef struct {
  int is_event;  // 0: a kernel, 1: an event, 2: a copy
  void* at;
  CUlaunchConfig config;
  CUlaunchAttribute attributes[4];
  unsigned char bytes[most_parameters][256];
  size_t size;
} Node;
typedef struct {
  int count;
  Node* nodes[most_nodes];
} Graph;
typedef struct {
  double us;
} Event;
static double now;
static Event* last;
static Graph* capturing;

static int fails(const char* name) {
  const char* wanted = getenv("LIBCUDA_FAILS");
  const size_t size = strlen(name);
  static int calls;
  if (!wanted || strncmp(wanted, name, size) || (wanted[size] && wanted[size] != ':')) return 0;
  return ++calls == (wanted[size] ? atoi(wanted + size + 1) : 1);
}
static void hang(const char* name) {
  while (getenv("LIBCUDA_HANGS") && !strcmp(getenv("LIBCUDA_HANGS"), name)) pause();
}
#define CALL(name) \
  hang(name);      \
  if (fails(name)) return CUDA_ERROR_ILLEGAL_ADDRESS

static void note(const Node* node) {
  const char* path = getenv("LIBCUDA_LOG");
  FILE* log = path ? fopen(path, "a") : NULL;
  const Kernel* kernel = node->at;
  if (!log) return;
  const CUlaunchConfig* c = &node->config;
  fprintf(log, "%s %u %u %u %u %u %u %u", kernel->name, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
          c->blockDimZ, c->sharedMemBytes);
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const CUlaunchAttribute* a = &node->attributes[i];
    if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      fprintf(log, " cluster=%u,%u,%u", a->value.clusterDim.x, a->value.clusterDim.y, a->value.clusterDim.z);
    }
    if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      fprintf(log, " programmatic=%d", a->value.programmaticStreamSerializationAllowed);
    }
    if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) fprintf(log, " cooperative=%d", a->value.cooperative);
  }
  for (int i = 0; i < kernel->count; ++i) {
    fprintf(log, " ");
    for (size_t k = 0; k < kernel->sizes[i] && k < 256; ++k) fprintf(log, "%02x", node->bytes[i][k]);
  }
  fprintf(log, "\n");
  fclose(log);
}

static unsigned long long word(const Node* node, int i) {
  unsigned long long value = 0;
  memcpy(&value, node->bytes[i], ((const Kernel*)node->at)->sizes[i] < 8 ? 4 : 8);
  return value;
}

// Whether a call has had this input; remembers it.
static int is_kept(unsigned long long input) {
  static unsigned long long kept[4096];
  static int count = 0;
  for (int i = 0; i < count; ++i) {
    if (kept[i] == input) return 1;
  }
  if (count < 4096) kept[count++] = input;
  return 0;
}

static struct {
  char* at;
  size_t bytes;
} blocks[256];
static int is_elsewhere(const char* input) {
  for (int i = 0; i < 256; ++i) {
    const char *from = blocks[i].at, *end = from + blocks[i].bytes;
    while (from && (from = memmem(from, end - from, input, 32)) == input) ++from;
    if (from) return 1;
  }
  return 0;
}

static void work(const Node* node) {
  if (node->is_event == 1) {
    last = node->at;
    last->us = now;
  } else if (node->is_event == 2) {
    memcpy(*(void* const*)node->bytes[0], *(void* const*)node->bytes[1], node->size);
    now += 1;
  } else {
    const Kernel* kernel = node->at;
    note(node);
    if (!strcmp(kernel->name, "spin")) {
      now += word(node, 0) ? (double)word(node, 0) / 2000 : 0.5;
    } else if (!strcmp(kernel->name, "stamp")) {
      *(unsigned long long*)word(node, 0) = (unsigned long long)(now * 1000) + 1;
      now += word(node, 1) ? (double)word(node, 1) / 2000 : 0.5;
    } else if (!strcmp(kernel->name, "flush")) {
      now += 10;
    } else if (!strcmp(kernel->name, "poison")) {
      memset((void*)word(node, 0), (int)word(node, 1), word(node, 2));
    } else if (!strncmp(kernel->name, "scrub", 5) || !strcmp(kernel->name, "touch")) {
      now += 1;
    } else {
      now += strstr(kernel->name, "slow") ? 2000 : 3;
      if (last && strstr(kernel->name, "forge")) last->us += 2;
      if (strstr(kernel->name, "keep") && is_kept(*(unsigned long long*)word(node, 0))) now -= 2;
      if (strstr(kernel->name, "spy") && is_elsewhere((const char*)word(node, 0))) now -= 2;
      static int calls;
      const int works = !strstr(kernel->name, "odd") || ++calls % 2;
      void *to = (void*)word(node, 1), *from = (void*)word(node, 0);
      if (strstr(kernel->name, "stale") && !memcmp(to, from, word(node, 2))) now -= 2;
      if (works && strstr(kernel->name, "copy")) memcpy(to, from, word(node, 2));
      if (strstr(kernel->name, "inc")) {
        for (unsigned long long i = 0; i < word(node, 2); ++i) ++((unsigned char*)word(node, 1))[i];
      }
    }
  }
}

static CUresult enqueue(Node* node) {
  if (capturing) {
    if (capturing->count < most_nodes) capturing->nodes[capturing->count++] = node;
    return CUDA_SUCCESS;
  }
  work(node);
  free(node);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == CUDA_ERROR_NOT_FOUND     ? "CUDA_ERROR_NOT_FOUND"
                                             : "CUDA_ERROR_INVALID_VALUE";
  return CUDA_SUCCESS;
}
CUresult cuInit(unsigned flags) {
  CALL("cuInit");
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice device) { return snprintf(name, size, "Stand-in"), CUDA_SUCCESS; }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = (char)(17 * i);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4
           : which == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE      ? 1 << 16
           : which == CU_DEVICE_ATTRIBUTE_CLOCK_RATE         ? 1  // it is slow, so that the host is never late
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) { return *context = (CUcontext)&now, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxResetPersistingL2Cache(void) { return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CALL("cuModuleLoadData");
  return *module = (CUmodule)image, CUDA_SUCCESS;
}
static struct {
  void* text;
  size_t bytes;
} linked;
CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  return *state = (CUlinkState)&linked, CUDA_SUCCESS;
}
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char* name, unsigned count,
                          CUjit_option* options, void** values) {
  if (type != CU_JIT_INPUT_PTX) return CUDA_ERROR_INVALID_VALUE;
  return linked.text = data, linked.bytes = bytes, CUDA_SUCCESS;
}
CUresult cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  return *image = memcpy(malloc(linked.bytes), linked.text, linked.bytes), *bytes = linked.bytes, CUDA_SUCCESS;
}
CUresult cuLinkDestroy(CUlinkState state) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CALL("cuModuleGetFunction");
  Kernel* kernel = calloc(1, sizeof *kernel);
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  kernel->limit = 49152;
  const int is_text = ((const char*)module)[0] == '.';
  if (is_text ? !strstr((const char*)module, name) : strstr(name, "missing") != NULL) return CUDA_ERROR_NOT_FOUND;
  const char* usual = !strcmp(name, "poison") || !strcmp(name, "touch") ? "8,8,8" : "8,8";
  const char* sizes = is_text ? usual : getenv("LIBCUDA_PARAMETERS");
  for (char *at = (char*)sizes, *end; at && *at; at = *end == ',' ? end + 1 : end) kernel->sizes[kernel->count++] = strtoul(at, &end, 10);
  return *function = (CUfunction)kernel, CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES      ? 0
                                                              : ((Kernel*)function)->limit;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) ((Kernel*)function)->limit = value;
  return value > 232448 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  const Kernel* kernel = (const Kernel*)function;
  if (index >= (size_t)kernel->count) return CUDA_ERROR_INVALID_VALUE;
  return *offset = 0, *size = kernel->sizes[index], CUDA_SUCCESS;
}
static void remember(char* at, size_t bytes) {
  for (int i = 0; at && i < 256; ++i) {
    if (!blocks[i].at) {
      blocks[i].at = at, blocks[i].bytes = bytes;
      break;
    }
  }
}
CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
  CALL("cuMemAlloc");
  const char* most = getenv("LIBCUDA_MEMORY");
  *at = bytes > (most ? strtoull(most, NULL, 10) : 1ull << 40) ? 0 : (CUdeviceptr)aligned_alloc(512, (bytes + 511) / 512 * 512);
  remember((char*)*at, bytes);
  return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemAllocHost_v2(void** at, size_t bytes) {
  remember(*at = calloc(1, bytes), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr at) {
  for (int i = 0; i < 256; ++i) blocks[i].at = blocks[i].at == (char*)at ? NULL : blocks[i].at;
  return free((void*)at), CUDA_SUCCESS;
}
static struct {
  void *to, *bytes;
  size_t size;
} staged;
static void end_copy(void) {
  if (staged.bytes) memcpy(staged.to, staged.bytes, staged.size);
  free(staged.bytes);
  staged.bytes = NULL;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  end_copy();
  staged.to = (void*)to, staged.size = bytes;
  memcpy(staged.bytes = malloc(bytes), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  end_copy();
  return memcpy(to, (void*)from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Node* node = calloc(1, sizeof *node);
  node->is_event = 2, node->size = bytes;
  memcpy(node->bytes[0], &to, 8), memcpy(node->bytes[1], &from, 8);
  return enqueue(node);
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t bytes) { return memset((void*)to, byte, bytes), CUDA_SUCCESS; }
CUresult cuModuleGetGlobal_v2(CUdeviceptr* at, size_t* bytes, CUmodule module, const char* name) {
  static char room[64];
  return *at = (CUdeviceptr)room, *bytes = sizeof room, CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  return memset((void*)to, byte, bytes), CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return *stream = (CUstream)&now, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
  if (!stream) return end_copy(), CUDA_SUCCESS;
  CALL("cuStreamSynchronize");
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return capturing = calloc(1, sizeof *capturing), CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  *graph = (CUgraph)capturing;
  return capturing = NULL, CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) { return *event = calloc(1, sizeof(Event)), CUDA_SUCCESS; }
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  if (capturing && flags != CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Node* node = calloc(1, sizeof *node);
  node->is_event = 1, node->at = event;
  return enqueue(node);
}
CUresult cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }
CUresult cuEventSynchronize(CUevent event) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return *milliseconds = (float)((((Event*)end)->us - ((Event*)start)->us) / 1000), CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return *made = (CUgraphExec)graph, CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) { return CUDA_SUCCESS; }
CUresult cuGraphUpload(CUgraphExec made, CUstream stream) { return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec made) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec made, CUstream stream) {
  CALL("cuGraphLaunch");
  for (int i = 0; i < ((Graph*)made)->count; ++i) work(((Graph*)made)->nodes[i]);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  CALL("cuLaunchKernelEx");
  Node* node = calloc(1, sizeof *node);
  const Kernel* kernel = (const Kernel*)function;
  node->at = function, node->config = *config;
  if ((int)config->sharedMemBytes > kernel->limit) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; ++i) node->attributes[i] = config->attrs[i];
  for (int i = 0; i < kernel->count; ++i) memcpy(node->bytes[i], parameters[i], kernel->sizes[i] < 256 ? kernel->sizes[i] : 256);
  return enqueue(node);
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType dtype, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if ((size_t)map % 64) return CUDA_ERROR_INVALID_VALUE;
  unsigned long long all[16] = {(size_t)address, dtype, rank, sizes[0], sizes[1], strides[0], box[0], box[1],
                                steps[0], steps[1], interleave, swizzle, promotion, fill};
  return memcpy(map, all, sizeof *map), CUDA_SUCCESS;
}
