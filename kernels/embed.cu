// Embedding: residual(rows, hidden) fp32 = table(vocab, hidden) fp16, the row of each token.
//
// One block per row. Reads 2 bytes and writes 4 per number: nothing beside one layer.
#include "ptx.cuh"

KERNEL(128, 1)
embed(const __half* __restrict__ table, const int* __restrict__ tokens, float* __restrict__ residual, int hidden) {
  const __half* from = table + static_cast<size_t>(tokens[blockIdx.x]) * hidden;
  float* to = residual + static_cast<size_t>(blockIdx.x) * hidden;
  for (int i = threadIdx.x; i < hidden; i += 128) {
    to[i] = to_float(from[i]);
  }
}
