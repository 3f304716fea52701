// Rotary positions, and the write of keys and values: qkv(rows, q + k + v) fp32 -> queries fp16 and the paged cache.
//
//   qkv     (rows, (heads + 2 * kv_heads) * dim) fp32       angles (positions, dim) fp32: dim / 2 cosines, then sines
//   places  (rows, 2): position, and the block that holds it
//   norms   (2, dim) fp32: RMSNorm of each head of q and of k (Qwen3), or null
//   queries (rows, heads, dim) fp16
//   cache   one layer's part of (blocks, layers, kv_heads, 2, 32 * dim) fp16; `stride` numbers from block to block.
//           Keys lie (32, dim); values lie (dim, 32), so that attention reads both in 16-byte pieces.
//
// One block per row and head, of q, k and v; a thread has the pair (i, i + dim / 2). The angles come from a table that the
// host made in double precision, so that theta, Llama 3's scaling and the device's sine change no bit. A value or key
// past fp16 becomes infinite and shows in the logits. Floor: 4 bytes read, 2 written per number.
#include "block.cuh"

KERNEL(128, 1)
rope(const float* __restrict__ qkv, const float* __restrict__ angles, const int* __restrict__ places,
     const float* __restrict__ norms, __half* __restrict__ queries, __half* __restrict__ cache, int heads, int kv_heads,
     int dim, int stride, float eps) {
  SHARED(float, slots, 4);
  const int row = blockIdx.x, head = blockIdx.y, half = dim / 2, i = threadIdx.x;
  const int position = places[2 * row], block = places[2 * row + 1];
  const float* x = qkv + (static_cast<size_t>(row) * (heads + 2 * kv_heads) + head) * dim;
  const bool is_query = head < heads, is_value = head >= heads + kv_heads, mine = i < half;
  float a = mine ? x[i] : 0.0f, b = mine ? x[i + half] : 0.0f;
  if (norms && !is_value) {
    const float* weight = norms + (is_query ? 0 : dim);
    const float mean = reduce<128, Sum>(fmaf(a, a, b * b), slots) / static_cast<float>(dim);
    const float scale = 1.0f / sqrtf(mean + eps);
    a = mine ? a * scale * weight[i] : 0.0f;
    b = mine ? b * scale * weight[i + half] : 0.0f;
  }
  if (!mine) {
    return;
  }
  if (!is_value) {
    const float* angle = angles + static_cast<size_t>(position) * dim;
    const float turned = a * angle[i] - b * angle[i + half];
    b = b * angle[i] + a * angle[i + half];
    a = turned;
  }
  if (is_query) {
    __half* out = queries + (static_cast<size_t>(row) * heads + head) * dim;
    out[i] = to_half(a);
    out[i + half] = to_half(b);
    return;
  }
  const int kv = (head - heads) % kv_heads, place = position % 32;
  __half* keys = cache + static_cast<size_t>(block) * stride + static_cast<size_t>(kv) * 64 * dim;
  if (is_value) {
    __half* values = keys + 32 * dim;
    values[i * 32 + place] = to_half(a);
    values[(i + half) * 32 + place] = to_half(b);
  } else {
    keys[place * dim + i] = to_half(a);
    keys[place * dim + i + half] = to_half(b);
  }
}
