// SiLU-mul: y = silu(gate) * up, rounded to fp16 with a factor per row.
//
//   both    (rows, 2 * width) fp32: a row's gates, then its ups    y (rows, width) fp16
//   factors (rows,) fp32, a power of two: the true number is y * factor
//
// The products outgrow fp16 in Qwen2.5 (where the stream's large numbers are made), so each row is brought under 2^13
// by a power of two, which changes no bit of what fits. The linear layer multiplies its sums by the factor: exact again.
// One block per row, two passes. Floor: 8 bytes read twice, 2 written per number.
#include "block.cuh"

// gate / (1 + e^-gate) * up. At large negative gates e^-gate is infinite and the quotient -0.
DEVICE float silu_mul(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

KERNEL(512, 1)
silu(const float* __restrict__ both, __half* __restrict__ y, float* __restrict__ factors, int width) {
  SHARED(float, slots, 16);
  const size_t row = blockIdx.x;
  const float* gate = both + row * 2 * width;
  const float* up = gate + width;
  float most = 0.0f;
  for (int i = threadIdx.x; i < width; i += 512) {
    most = fmaxf(most, fabsf(silu_mul(gate[i], up[i])));
  }
  most = reduce<512, Max>(most, slots);
  // fmaxf drops NaN: it stays NaN in y. Infinity has no power of two that helps: it stays infinite.
  int exponent = 0;
  if (most > 8192.0f && most < INFINITY) {
    frexpf(most, &exponent);
    exponent -= 13;
  }
  const float shrink = ldexpf(1.0f, -exponent);
  for (int i = threadIdx.x; i < width; i += 512) {
    y[row * width + i] = to_half(silu_mul(gate[i], up[i]) * shrink);
  }
  if (threadIdx.x == 0) {
    factors[row] = ldexpf(1.0f, exponent);
  }
}
