// Sums and maxima over the threads of a block, in an order that is fixed by the number of threads.
//
// Not kernels. Every thread must call them; every thread gets the result.
#pragma once
#include "ptx.cuh"

struct Sum {
  DEVICE float of(float a, float b) { return a + b; }
};
struct Max {
  DEVICE float of(float a, float b) { return fmaxf(a, b); }
};

// The result over all threads; THREADS is their number, a multiple of 32. Within a warp by halves, then the warps in
// their order. `slots` is room for THREADS / 32 numbers, free for other use only after the next barrier.
template <int THREADS, class Op>
DEVICE float reduce(float x, float* slots) {
  for (int width = 16; width > 0; width /= 2) {
    x = Op::of(x, shuffle_xor(x, width));
  }
  if (threadIdx.x % 32 == 0) {
    slots[threadIdx.x / 32] = x;
  }
  __syncthreads();
  x = slots[0];
  for (int warp = 1; warp < THREADS / 32; warp++) {
    x = Op::of(x, slots[warp]);
  }
  return x;
}
