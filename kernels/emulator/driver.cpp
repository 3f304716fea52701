// A libcuda.so over the emulator: as much of the driver's interface as this project calls, to test that side of it.
//
// Not for use. What a driver may put off is put off until somebody waits for it, so a buffer that is written too early or
// read too early shows; what must not be done while a stream is captured is refused. Two variables change it:
//   EMULATED_CUDA_FAIL    name of a function that fails, and after a comma at which of its calls (the first, if not said)
//   EMULATED_CUDA_FREE    bytes of free memory (16 GB)
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emulator.h"

extern "C" int emulator_launch(const char* name, const u32* grid, u32 threads, u32 order, void** arguments);

namespace {

using Result = int;
constexpr Result SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, CAPTURING = 900, UNKNOWN = 999;

using Work = std::function<void()>;
std::vector<Work> queue, captured;
bool capturing = false;
std::map<uint64_t, void*> memory;
std::map<std::string, int> calls;

// Whether this call of a function is the one that is to fail.
Result planned(const char* function) {
  static const char* plan = getenv("EMULATED_CUDA_FAIL");
  if (!plan) return SUCCESS;
  const std::string text = plan, name = text.substr(0, text.find(','));
  const int at = text.find(',') == std::string::npos ? 1 : atoi(text.c_str() + text.find(',') + 1);
  return name == function && ++calls[name] == at ? UNKNOWN : SUCCESS;
}

#define CALL(name) \
  if (const Result failure = planned(#name)) return failure

void enqueue(Work work) { (capturing ? captured : queue).push_back(std::move(work)); }

void run() {
  for (const Work& work : queue) work();
  queue.clear();
}

uint64_t free_bytes() {
  const char* text = getenv("EMULATED_CUDA_FREE");
  return text ? strtoull(text, nullptr, 10) : 16ull << 30;
}

struct Graph {
  std::vector<Work> work;
};

}  // namespace

extern "C" {

Result cuInit(unsigned) {
  CALL(cuInit);
  return SUCCESS;
}

Result cuDriverGetVersion(int* version) {
  CALL(cuDriverGetVersion);
  *version = 12080;
  return SUCCESS;
}

Result cuGetErrorString(Result code, const char** text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == CAPTURING ? "not while capturing" : "made to fail";
  return SUCCESS;
}

Result cuGetErrorName(Result, const char** text) {
  *text = "EMULATED";
  return SUCCESS;
}

Result cuDeviceGet(int* device, int ordinal) {
  CALL(cuDeviceGet);
  *device = ordinal;
  return ordinal == 0 ? SUCCESS : INVALID;
}

Result cuDeviceGetName(char* name, int size, int) {
  snprintf(name, size, "Emulated GPU");
  return SUCCESS;
}

Result cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 13:  // clock, kHz
      *value = 1000000;
      return SUCCESS;
    case 16:  // multiprocessors
      *value = 4;
      return SUCCESS;
    case 75:  // compute capability
      *value = 8;
      return SUCCESS;
    case 76:
      *value = 9;
      return SUCCESS;
    default:
      *value = 0;
      return SUCCESS;
  }
}

Result cuDevicePrimaryCtxRetain(void** context, int) {
  CALL(cuDevicePrimaryCtxRetain);
  *context = &queue;
  return SUCCESS;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
Result cuCtxSetCurrent(void*) { return SUCCESS; }
Result cuCtxGetCurrent(void** context) {
  *context = &queue;
  return SUCCESS;
}
Result cuCtxSynchronize() {
  run();
  return SUCCESS;
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  CALL(cuMemGetInfo_v2);
  *free = free_bytes();
  *total = 16ull << 30;
  return SUCCESS;
}

Result cuStreamCreate(void** stream, unsigned) {
  CALL(cuStreamCreate);
  *stream = &queue;
  return SUCCESS;
}
Result cuStreamDestroy_v2(void*) { return SUCCESS; }
Result cuStreamSynchronize(void*) {
  CALL(cuStreamSynchronize);
  if (capturing) return CAPTURING;
  run();
  return SUCCESS;
}

Result cuModuleLoadData(void** module, const void* image) {
  CALL(cuModuleLoadData);
  // A cubin is an ELF file.
  if (memcmp(image, "\177ELF", 4)) return INVALID;
  *module = &memory;
  return SUCCESS;
}
Result cuModuleUnload(void*) { return SUCCESS; }

Result cuModuleGetFunction(void** function, void*, const char* name) {
  CALL(cuModuleGetFunction);
  for (int i = 0; i < emulator::ENTRY_COUNT; i++) {
    if (!strcmp(emulator::ENTRIES[i].name, name)) {
      *function = const_cast<emulator::Entry*>(&emulator::ENTRIES[i]);
      return SUCCESS;
    }
  }
  return INVALID;
}

Result cuMemAlloc_v2(uint64_t* at, size_t bytes) {
  CALL(cuMemAlloc_v2);
  if (capturing) return CAPTURING;
  if (bytes > free_bytes()) return OUT_OF_MEMORY;
  void* piece = nullptr;
  if (posix_memalign(&piece, 256, bytes)) return OUT_OF_MEMORY;
  // Whatever was there before is not zero.
  memset(piece, 0xcd, bytes);
  *at = reinterpret_cast<uint64_t>(piece);
  memory[*at] = piece;
  return SUCCESS;
}

Result cuMemFree_v2(uint64_t at) {
  CALL(cuMemFree_v2);
  if (capturing) return CAPTURING;
  run();
  free(reinterpret_cast<void*>(at));
  return memory.erase(at) ? SUCCESS : INVALID;
}

Result cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  CALL(cuMemHostAlloc);
  *at = malloc(bytes);
  return SUCCESS;
}
Result cuMemFreeHost(void* at) {
  free(at);
  return SUCCESS;
}

Result cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void*) {
  CALL(cuMemsetD8Async);
  enqueue([=] { memset(reinterpret_cast<void*>(at), value, bytes); });
  return SUCCESS;
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  CALL(cuMemcpyHtoDAsync_v2);
  enqueue([=] { memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return SUCCESS;
}
Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  CALL(cuMemcpyDtoHAsync_v2);
  enqueue([=] { memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return SUCCESS;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
  CALL(cuMemcpyDtoDAsync_v2);
  enqueue([=] { memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return SUCCESS;
}

Result cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned,
                      void*, void** parameters, void**) {
  CALL(cuLaunchKernel);
  const auto* entry = static_cast<const emulator::Entry*>(function);
  // Arguments are copied now: the caller's are gone when the work is done.
  std::vector<uint64_t> arguments(entry->arguments);
  for (int i = 0; i < entry->arguments; i++) memcpy(&arguments[i], parameters[i], sizeof(uint64_t));
  enqueue([=]() mutable {
    std::vector<void*> pointers;
    for (auto& argument : arguments) pointers.push_back(&argument);
    const u32 grid[3] = {x, y, z};
    emulator_launch(entry->name, grid, threads, 1, pointers.data());
  });
  return SUCCESS;
}

Result cuStreamBeginCapture_v2(void*, int) {
  CALL(cuStreamBeginCapture_v2);
  capturing = true;
  captured.clear();
  return SUCCESS;
}
Result cuStreamEndCapture(void*, void** graph) {
  CALL(cuStreamEndCapture);
  if (!capturing) return INVALID;
  capturing = false;
  *graph = new Graph{captured};
  return SUCCESS;
}
Result cuGraphInstantiateWithFlags(void** instance, void* graph, unsigned long long) {
  CALL(cuGraphInstantiateWithFlags);
  *instance = new Graph(*static_cast<Graph*>(graph));
  return SUCCESS;
}
Result cuGraphLaunch(void* instance, void*) {
  CALL(cuGraphLaunch);
  for (const Work& work : static_cast<Graph*>(instance)->work) enqueue(work);
  return SUCCESS;
}
Result cuGraphExecDestroy(void* instance) {
  delete static_cast<Graph*>(instance);
  return SUCCESS;
}
Result cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return SUCCESS;
}
}
