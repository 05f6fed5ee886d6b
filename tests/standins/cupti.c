// A stand-in for libcupti: launch() makes a kernel's record, which goes to the registered callbacks as CUPTI's do. Needs
// no GPU. CUPTI_STANDIN: "fails" (recording is refused), "drops" (records are lost), "silent" (there are none).
#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static CUpti_BuffersCallbackRequestFunc requested;
static CUpti_BuffersCallbackCompleteFunc completed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_ActivityKernel9* buffer;
static size_t room, used, lost;
static uint32_t calls;

static int is(const char* mode) { return getenv("CUPTI_STANDIN") && !strcmp(getenv("CUPTI_STANDIN"), mode); }

static void deliver(void) {
  CUpti_ActivityKernel9* full = buffer;
  if (full) completed(NULL, 0, (uint8_t*)full, room, used * sizeof *full);
  buffer = NULL;
  used = 0;
}

void launch(const char* name, double us, uint32_t call, const int32_t* sizes) {
  pthread_mutex_lock(&lock);
  size_t most;
  if (!buffer) requested((uint8_t**)&buffer, &room, &most);
  if (buffer) {
    CUpti_ActivityKernel9* record = &buffer[used++];
    memset(record, 0, sizeof *record);
    record->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record->name = name;
    record->correlationId = call ? call : ++calls;
    record->start = 1700000000000000000ull + 1000000ull * ++lost;
    record->end = us > 0 ? record->start + (uint64_t)(1000 * us) : 0;
    record->gridX = sizes[0], record->gridY = sizes[1], record->gridZ = sizes[2];
    record->blockX = sizes[3], record->blockY = sizes[4], record->blockZ = sizes[5];
    record->registersPerThread = (uint16_t)sizes[6];
    record->staticSharedMemory = sizes[7], record->dynamicSharedMemory = sizes[8];
    if ((used + 1) * sizeof *record > room) deliver();
  }
  pthread_mutex_unlock(&lock);
}

CUptiResult cuptiGetVersion(uint32_t* version) { return *version = 130001, CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  return *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  return requested = request, completed = complete, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return is("fails") ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  pthread_mutex_lock(&lock);
  deliver();
  pthread_mutex_unlock(&lock);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* bytes, size_t valid, CUpti_Activity** record) {
  CUpti_ActivityKernel9* next = *record ? (CUpti_ActivityKernel9*)*record + 1 : (CUpti_ActivityKernel9*)bytes;
  if ((uint8_t*)next >= bytes + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  return *record = (CUpti_Activity*)next, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t* dropped) {
  return *dropped = is("drops") ? 3 : 0, CUPTI_SUCCESS;
}
