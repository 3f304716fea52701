// Runs CUDA C++ kernels on a CPU: the threads of a block are fibers, and blocks run one after the other.
//
// Not a simulator: it knows nothing of time, banks or caches. It gives the names that ptx.cuh gives on a GPU, and no
// others. What it is hard on, where a GPU may forgive: shared memory starts as NaN, an asynchronous copy arrives when it
// is waited for and not before, misaligned vectors and barriers that not all threads reach end the program, and the
// order in which threads run is the caller's choice, so that whatever depends on it shows.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

typedef uint32_t u32;

#define KERNEL(threads, blocks) static void
#define DEVICE static inline
#define METHOD inline
// Every thread of a block declares the same arrays in the same order, and so gets the same ones.
#define SHARED(type, name, count) type* name = static_cast<type*>(emulator::shared(sizeof(type) * (count)))

struct Index3 {
  u32 x, y, z;
};
struct alignas(8) uint2 {
  u32 x, y;
};
struct alignas(16) uint4 {
  u32 x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace emulator {

// A thread's place, and what its block knows.
const Index3& thread_index();
const Index3& block_index();
const Index3& grid_size();

// The next `bytes` of the block's shared memory.
void* shared(size_t bytes);

// Waits for all threads of the block; none may have ended.
void barrier();

// Hands `bytes` at `value` to the warp and returns, once all its 32 lanes have done so, what lane `i` handed in at
// `i * SLOT`. It stays there until this thread's next call.
constexpr int SLOT = 64;
const unsigned char* exchange(const void* value, int bytes);

// Remembers a copy of 16 bytes, ends a group of them, and carries out all but the last `pending` groups.
void copy_later(void* to, const void* from);
void copy_group();
void copy_now(int pending);

// A kernel by name; the table is made in kernels.cpp.
struct Entry {
  const char* name;
  void (*kernel)(void**);
  int arguments;
};
extern const Entry ENTRIES[];
extern const int ENTRY_COUNT;

// Ends the program, saying which thread did what.
[[noreturn]] void fail(const char* what);

template <class T>
inline T lane(const unsigned char* all, int index) {
  T value;
  memcpy(&value, all + index * SLOT, sizeof value);
  return value;
}

// fp16 as integers: no compiler or processor needs to know the type.
inline float half_to_float(uint16_t h) {
  const u32 sign = static_cast<u32>(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  u32 bits;
  float value;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | fraction << 13;
  } else if (exponent > 0) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    value = static_cast<float>(fraction) / 16777216.0f;  // exact: subnormals are multiples of 2^-24
    return sign ? -value : value;
  }
  memcpy(&value, &bits, 4);
  return value;
}

// Rounds to the nearest, ties to even.
inline uint16_t float_to_half(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  const uint16_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and more round to infinity
  if (bits < 0x38800000) {                       // below 2^-14: a multiple of 2^-24
    memcpy(&x, &bits, 4);
    return sign | static_cast<uint16_t>(std::nearbyintf(x * 16777216.0f));
  }
  const u32 kept = bits + 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((kept >> 13) - (112 << 10));
}

// Calls a kernel with arguments as cuLaunchKernel takes them: an array of pointers to each.
template <class... A, size_t... I>
inline void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
}
template <class... A>
inline void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>{});
}
template <class... A>
constexpr int count(void (*)(A...)) {
  return sizeof...(A);
}

}  // namespace emulator

#define threadIdx (emulator::thread_index())
#define blockIdx (emulator::block_index())
#define gridDim (emulator::grid_size())
using std::isfinite;
using std::max;
using std::min;

struct __half {
  uint16_t bits;
};
DEVICE float __half2float(__half h) { return emulator::half_to_float(h.bits); }
DEVICE __half __float2half_rn(float x) { return {emulator::float_to_half(x)}; }
DEVICE void __syncthreads() { emulator::barrier(); }

DEVICE u32 pack_halves(float low, float high) {
  return emulator::float_to_half(low) | static_cast<u32>(emulator::float_to_half(high)) << 16;
}

DEVICE float half_bits(u32 bits) { return emulator::half_to_float(static_cast<uint16_t>(bits)); }

DEVICE u32 subtract_halves(u32 a, u32 b) {
  using emulator::half_to_float;
  return pack_halves(half_to_float(a & 0xffff) - half_to_float(b & 0xffff),
                     half_to_float(a >> 16) - half_to_float(b >> 16));
}

DEVICE u32 and_or(u32 a, u32 mask, u32 bits) { return (a & mask) | bits; }
DEVICE void copy_async(void* to, const void* from) { emulator::copy_later(to, from); }
DEVICE void copy_commit() { emulator::copy_group(); }
template <int N>
DEVICE void copy_wait() {
  emulator::copy_now(N);
}

DEVICE void mma(float d[4], const u32 a[4], const u32 b[2]) {
  // Fragments travel as fp16; each lane then needs two rows of a and two columns of b.
  u32 mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char* all = emulator::exchange(mine, sizeof mine);
  const int self = threadIdx.x % 32, g = self / 4, t = self % 4;
  float rows[2][16], columns[2][16];
  const auto spread = [](u32 pair, float* to) {
    to[0] = emulator::half_to_float(pair & 0xffff);
    to[1] = emulator::half_to_float(pair >> 16);
  };
  for (int k = 0; k < 4; k++) {
    for (int i = 0; i < 2; i++) {
      for (int high = 0; high < 2; high++) {
        u32 word;
        memcpy(&word, all + (4 * g + k) * emulator::SLOT + 4 * (i + 2 * high), 4);
        spread(word, &rows[i][8 * high + 2 * k]);
        memcpy(&word, all + (4 * (2 * t + i) + k) * emulator::SLOT + 4 * (4 + high), 4);
        spread(word, &columns[i][8 * high + 2 * k]);
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) sum += rows[i / 2][k] * columns[i % 2][k];
    d[i] += sum;
  }
}

template <class T>
DEVICE T emulator_shuffle(T x, int mask) {
  const unsigned char* all = emulator::exchange(&x, sizeof x);
  return emulator::lane<T>(all, static_cast<int>(threadIdx.x % 32) ^ mask);
}
DEVICE float shuffle_xor(float x, int mask) { return emulator_shuffle(x, mask); }
DEVICE int shuffle_xor(int x, int mask) { return emulator_shuffle(x, mask); }
