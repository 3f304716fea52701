// Residual sum and RMSNorm: residual += change, then normed = residual / rms(residual) * weight, rounded to fp16.
//
//   residual (rows, hidden) fp32, in and out     change (rows, hidden) fp32, or null in the first layer
//   picks    (blocks,) row of each block, or null for its own number: the output layer wants few rows. Where it is there,
//            the residual stays as it is: rows may be picked twice.
//   weight   (hidden,) fp32                      normed (blocks, hidden) fp16
//
// One block per row. The sum stays in fp32: Qwen2.5's residual stream outgrows fp16. The second pass over the row comes
// from the cache. Floor: 4 bytes read twice, 4 and 2 written per number; at batch 1 it is the launch that costs.
// A row's bits depend on that row alone: 256 partial sums by column, then `reduce`.
#include "block.cuh"

KERNEL(256, 1)
rms_norm(float* residual, const float* change, const int* picks, const float* __restrict__ weight, __half* __restrict__ normed,
     int hidden, float eps) {
  SHARED(float, slots, 8);
  const size_t row = picks ? picks[blockIdx.x] : blockIdx.x;
  float* x = residual + row * hidden;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < hidden; i += 256) {
    float sum = x[i];
    if (change) {
      sum += change[row * hidden + i];
      if (!picks) {
        x[i] = sum;
      }
    }
    squares = fmaf(sum, sum, squares);
  }
  const float mean = reduce<256, Sum>(squares, slots) / static_cast<float>(hidden);
  const float scale = 1.0f / sqrtf(mean + eps);
  __half* out = normed + static_cast<size_t>(blockIdx.x) * hidden;
  for (int i = threadIdx.x; i < hidden; i += 256) {
    const float sum = picks && change ? x[i] + change[row * hidden + i] : x[i];
    out[i] = to_half(sum * scale * weight[i]);
  }
}
