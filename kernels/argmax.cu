// Argmax and sanity of logits: for each row the index of the largest, and how many are not finite.
//
//   logits (rows, vocab) fp32     found (rows, 2): index of the largest, the first of equals; count of NaN and infinities
//
// One block per row. Greedy rows then need 8 bytes over the bus instead of 600 KB. Non-finite logits never win: the count
// ends the row. Floor: 4 bytes read per logit.
#include "block.cuh"

KERNEL(1024, 1)
argmax(const float* __restrict__ logits, int* __restrict__ found, int vocab) {
  SHARED(float, tops, 32);
  SHARED(int, indices, 32);
  SHARED(int, counts, 32);
  const float* x = logits + static_cast<size_t>(blockIdx.x) * vocab;
  float top = -INFINITY;
  int index = vocab, bad = 0;
  for (int i = threadIdx.x; i < vocab; i += 1024) {
    const float value = x[i];
    if (!isfinite(value)) {
      bad++;
    } else if (value > top || index == vocab) {
      top = value;
      index = i;
    }
  }
  for (int width = 16; width > 0; width /= 2) {
    const float other = shuffle_xor(top, width);
    const int at = shuffle_xor(index, width);
    bad += shuffle_xor(bad, width);
    if (other > top || (other == top && at < index)) {
      top = other;
      index = at;
    }
  }
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    tops[warp] = top;
    indices[warp] = index;
    counts[warp] = bad;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 32; i++) {
      bad += counts[i];
      if (tops[i] > top || (tops[i] == top && indices[i] < index)) {
        top = tops[i];
        index = indices[i];
      }
    }
    found[2 * blockIdx.x] = index;
    found[2 * blockIdx.x + 1] = bad;
  }
}
