// The words that differ between a GPU and the emulator: all inline PTX of the project, and nothing else.
//
// On a GPU this header is the machine's own instructions; under CUEMU, emulator/emulator.h gives the same names.
// A kernel that uses only these, __syncthreads and fp32 arithmetic runs on both.
#pragma once

#ifdef CUEMU
#include "emulator/emulator.h"
#else
#include <cuda_fp16.h>

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
// An array that a block's threads share. It holds nothing of use at first.
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]

#define INFINITY __int_as_float(0x7f800000)

typedef unsigned int u32;

// Two halves in one register, and back.
DEVICE u32 pack_halves(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const u32*>(&both);
}

DEVICE float half_bits(u32 bits) { return __half2float(__ushort_as_half(static_cast<unsigned short>(bits))); }

// Both halves of `a` minus those of `b`, rounded to fp16.
DEVICE u32 subtract_halves(u32 a, u32 b) {
  const __half2 d = __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const u32*>(&d);
}

// (a & mask) | bits, as one instruction.
DEVICE u32 and_or(u32 a, u32 mask, u32 bits) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
  return r;
}

// Starts a copy of 16 bytes from global to shared memory; both are aligned to 16. A plain copy before sm_80.
DEVICE void copy_async(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// Ends a group of copies.
DEVICE void copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last `N` groups of this thread are under way.
template <int N>
DEVICE void copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// d(16, 8) += a(16, 16) b(16, 8): fp16 factors, fp32 sums. With g = lane / 4 and t = lane % 4, a thread holds of a the
// rows g (a0, a2) and g + 8 (a1, a3) in columns 2t, 2t + 1 (a0, a1) and those plus 8 (a2, a3); of b the column g in rows
// 2t, 2t + 1 (b0) and those plus 8 (b1); of d the rows g (d0, d1) and g + 8 (d2, d3) in columns 2t, 2t + 1.
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16". Turing has only k = 8 and takes two.
DEVICE void mma(float d[4], const u32 a[4], const u32 b[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

// What the lane whose number differs in the bits of `mask` holds; all 32 lanes take part.
DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE int shuffle_xor(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
#endif

// The halves of a register.
DEVICE float low_half(u32 pair) { return half_bits(pair & 0xffffu); }
DEVICE float high_half(u32 pair) { return half_bits(pair >> 16); }
DEVICE float to_float(__half h) { return __half2float(h); }
DEVICE __half to_half(float x) { return __float2half_rn(x); }
