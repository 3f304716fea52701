// The emulator's machinery: fibers, rendezvous, shared memory, and the entry that Rust calls.
//
// Not the names that kernels see (emulator.h). One launch runs on the caller's thread, block after block.
#include "emulator.h"

#include <random>
#include <sys/mman.h>
#include <vector>

extern "C" void emulator_switch(void** save, void* to);

// Saves what a called function must preserve, on the stack, and goes on with another stack.
#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch,@function
emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
constexpr int FRAME = 8;      // words on a new stack: registers, the return address, one to align it as after a call
constexpr int RETURN_AT = 6;  // where among them the return address lies
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch,%function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
constexpr int FRAME = 20;
constexpr int RETURN_AT = 11;
#else
#error "the emulator has no context switch for this processor: it knows x86-64 and aarch64"
#endif

namespace emulator {
namespace {

constexpr size_t STACK = 128 << 10;
constexpr u32 MOST_THREADS = 1024;
constexpr size_t MOST_SHARED = 48 << 10;  // what every GPU gives without being asked
constexpr size_t GUARD = 64;              // bytes between shared arrays that nobody may write

// Threads that wait for one another; `buffer` has a half for even and one for odd generations.
struct Warp {
  u32 live = 0, arrived = 0, generation = 0;
  alignas(16) unsigned char buffer[2][32 * SLOT];
};

struct Copy {
  void* to;
  const void* from;
  int group;
};

struct Fiber {
  void* stack = nullptr;
  Index3 index{};
  u32 number = 0;
  size_t shared = 0;             // bytes of shared memory declared so far
  const u32* waits = nullptr;    // goes on when this is no longer `seen`
  u32 seen = 0;
  bool ended = false;
  int group = 0;
  std::vector<Copy> copies;
};

struct Block {
  Fiber* running = nullptr;
  void* scheduler = nullptr;
  Index3 index{}, grid{};
  u32 live = 0, arrived = 0, generation = 0;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  unsigned char* stacks = nullptr;
  size_t stack_count = 0;
  alignas(16) unsigned char shared[MOST_SHARED + 64 * GUARD];
  std::vector<std::pair<size_t, size_t>> arrays;  // start and end of each shared array
  void (*kernel)(void**) = nullptr;
  void** arguments = nullptr;

  ~Block() {
    if (stacks) munmap(stacks, stack_count * STACK);
  }
};

thread_local Block block;

void wait(const u32* generation) {
  Fiber* self = block.running;
  self->waits = generation;
  self->seen = *generation;
  emulator_switch(&self->stack, block.scheduler);
}

Warp& warp_of(const Fiber& fiber) { return block.warps[fiber.number / 32]; }

// Where a fiber starts; it never returns.
void start() {
  block.kernel(block.arguments);
  Fiber* self = block.running;
  if (!self->copies.empty()) fail("ends with copies that it did not wait for");
  self->ended = true;
  block.live--;
  warp_of(*self).live--;
  if (block.arrived > 0) fail("ends while others wait at a barrier");
  void* nowhere;
  emulator_switch(&nowhere, block.scheduler);
  abort();
}

void check_guards() {
  size_t from = 0;
  const auto clean = [&](size_t to) {
    for (; from < to; from++) {
      if (block.shared[from] != 0xff) fail("shared memory outside the declared arrays was written");
    }
  };
  for (const auto& [begin, end] : block.arrays) {
    clean(begin);
    from = end;
  }
  clean(sizeof block.shared);
}

void make_stacks(u32 threads) {
  if (block.stack_count >= threads) return;
  if (block.stacks) munmap(block.stacks, block.stack_count * STACK);
  void* memory =
      mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for stacks");
  block.stacks = static_cast<unsigned char*>(memory);
  block.stack_count = threads;
}

void run_block(u32 threads, const std::vector<u32>& order) {
  block.fibers.assign(threads, Fiber{});
  block.warps.assign((threads + 31) / 32, Warp{});
  memset(block.shared, 0xff, sizeof block.shared);
  block.arrays.clear();
  block.live = threads;
  block.arrived = block.generation = 0;
  for (u32 i = 0; i < threads; i++) {
    Fiber& fiber = block.fibers[i];
    fiber.number = i;
    fiber.index = {i, 0, 0};
    block.warps[i / 32].live++;
    void** bottom = reinterpret_cast<void**>(block.stacks + (i + 1) * STACK) - FRAME;
    bottom[RETURN_AT] = reinterpret_cast<void*>(&start);
    fiber.stack = bottom;
  }
  for (u32 left = threads; left > 0;) {
    bool moved = false;
    for (const u32 i : order) {
      Fiber& fiber = block.fibers[i];
      if (fiber.ended || (fiber.waits && *fiber.waits == fiber.seen)) continue;
      fiber.waits = nullptr;
      block.running = &fiber;
      emulator_switch(&block.scheduler, fiber.stack);
      moved = true;
      left -= fiber.ended;
    }
    if (!moved) fail("waits for threads that will never come");
  }
  check_guards();
}

}  // namespace

void fail(const char* what) {
  const Fiber* fiber = block.running;
  fprintf(stderr, "emulator: block (%u, %u, %u), thread %u: %s\n", block.index.x, block.index.y,
          block.index.z, fiber ? fiber->number : 0, what);
  abort();
}

const Index3& thread_index() { return block.running->index; }
const Index3& block_index() { return block.index; }
const Index3& grid_size() { return block.grid; }

void* shared(size_t bytes) {
  Fiber* self = block.running;
  const size_t begin = self->shared + GUARD, end = begin + bytes;
  self->shared = (end + 15) / 16 * 16;
  if (self->shared > MOST_SHARED) fail("more shared memory than a block has");
  const auto array = std::make_pair(begin, end);
  if (std::find(block.arrays.begin(), block.arrays.end(), array) == block.arrays.end()) {
    if (!block.arrays.empty() && block.arrays.back().second > begin) {
      fail("declares other shared arrays than the block's first thread");
    }
    block.arrays.push_back(array);
  }
  return block.shared + begin;
}

void barrier() {
  if (block.live < block.fibers.size()) fail("a barrier that some threads ended without");
  if (++block.arrived == block.live) {
    block.arrived = 0;
    block.generation++;
  } else {
    wait(&block.generation);
  }
}

const unsigned char* exchange(const void* value, int bytes) {
  Fiber* self = block.running;
  Warp& warp = warp_of(*self);
  if (warp.live != 32) fail("a warp's operation without all of its 32 threads");
  unsigned char* buffer = warp.buffer[warp.generation % 2];
  memcpy(buffer + self->number % 32 * SLOT, value, bytes);
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    warp.generation++;
  } else {
    wait(&warp.generation);
  }
  return buffer;
}

void copy_later(void* to, const void* from) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16) {
    fail("an asynchronous copy that is not aligned to 16 bytes");
  }
  Fiber* self = block.running;
  self->copies.push_back({to, from, self->group});
}

void copy_group() { block.running->group++; }

void copy_now(int pending) {
  Fiber* self = block.running;
  std::vector<Copy> later;
  for (const Copy& copy : self->copies) {
    if (copy.group < self->group - pending) {
      memcpy(copy.to, copy.from, 16);
    } else {
      later.push_back(copy);
    }
  }
  self->copies = later;
}

}  // namespace emulator

extern "C" {

// The name of kernel `index`, or null past the last.
const char* emulator_kernel(int index) {
  return index < emulator::ENTRY_COUNT ? emulator::ENTRIES[index].name : nullptr;
}

// Runs a kernel over `grid` (x, y, z) blocks of `threads`; threads take turns in the order 0: ascending, 1: descending,
// 2 and more: shuffled with this seed. Returns 0, or 1 where there is no kernel of this name.
int emulator_launch(const char* name, const u32* grid, u32 threads, u32 order, void** arguments) {
  using emulator::block;
  const auto* end = emulator::ENTRIES + emulator::ENTRY_COUNT;
  const auto* entry = std::find_if(emulator::ENTRIES, end, [&](auto& e) { return !strcmp(e.name, name); });
  if (entry == end) return 1;
  block.running = nullptr;
  if (threads == 0 || threads > emulator::MOST_THREADS) emulator::fail("a block of too many threads or none");
  emulator::make_stacks(threads);
  block.kernel = entry->kernel;
  block.arguments = arguments;
  block.grid = {grid[0], grid[1], grid[2]};
  std::vector<u32> turns(threads);
  for (u32 i = 0; i < threads; i++) turns[i] = order == 1 ? threads - 1 - i : i;
  std::minstd_rand random(order);
  for (u32 z = 0; z < grid[2]; z++) {
    for (u32 y = 0; y < grid[1]; y++) {
      for (u32 x = 0; x < grid[0]; x++) {
        block.index = {x, y, z};
        if (order > 1) std::shuffle(turns.begin(), turns.end(), random);
        emulator::run_block(threads, turns);
      }
    }
  }
  block.running = nullptr;
  return 0;
}
}
