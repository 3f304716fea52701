// Attention of new positions to all earlier ones, straight from the paged cache, on the tensor cores.
//
//   queries (rows, heads, dim) fp16     cache: see rope.cu     out (rows, heads * dim) fp16
//   tiles   (tiles, 4): first row, rows, position of the first row, start of the block table in `tables`
//   partial (rows, heads, parts, dim + 2) fp32: sums of a part, their largest score, their total weight
//
// A warp has 16 (row, head) pairs of one tile that share a key-value head (grouped-query attention): `rows` of them times
// heads / kv_heads, the rest unused. It looks at a block of 32 positions at a time: scores = q k^T, weights
// e^(score - largest so far), sums of values (online softmax, Milakov and Gimelshein 2018). Every PART = 128 absolute
// positions it starts anew, and the parts are folded in their order, each into what the ones before it gave. So a pair's
// bits depend on its own sequence alone, and two kernels give the same:
//
//   attention_split  A block of the grid has one part; `attention_fold` folds them. For few rows, where the cards would
//                    otherwise sleep.
//   attention_whole  One warp walks through all parts and folds as it goes. For prompts.
//
// A pair sees the positions up to its own; of the others the weight is 0, and what values lie beyond the tile's last
// position is not computed with, for it may be anything. The dimensions of a head, and the positions of a block, are dealt
// out to the fragments of mma so that a lane reads 16 bytes at a time (see `Fragments`).
//
// Floor: 4 dim bytes per position, key-value head and tile; 4 dim FLOP per pair and position.
#include "ptx.cuh"

constexpr int BLOCK = 32;
constexpr int PART = 128;
constexpr float LOG2E = 1.44269504f;

struct Shape {
  int heads, kv_heads, stride;
  float scale;
};

struct Tile {
  int row, rows, start;
  const int* blocks;
};

DEVICE uint4 read16(const __half* at) { return *reinterpret_cast<const uint4*>(at); }

// What pairs have gathered: lane (g, t) has of the pairs g and g + 8 the dimensions 8 n + 2 t and the next.
template <int DIM>
struct Gathered {
  float sum[DIM / 8][4];
  // Per pair, the same in its four lanes: the largest score; and the total of this lane's weights.
  float most[2], total[2];

  METHOD void clear() {
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        sum[n][i] = 0.0f;
      }
    }
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0.0f;
  }
};

// What to multiply sums by that were made under `old` as the largest score.
DEVICE float shrink(float old, float now) { return old == -INFINITY ? 0.0f : exp2f(old - now); }

// The tile's pair number to its row and head within the key-value head's.
struct Pair {
  int row, head;
  bool used;
  DEVICE Pair of(const Tile& tile, int group, int pair) {
    return {pair / group, pair % group, pair / group < tile.rows};
  }
};

template <int DIM>
struct Fragments {
  // Of q: step 2 c + j of mma has, in lane t, the dimensions 32 c + 8 t + 4 j + 0..3.
  u32 q[DIM / 16][4];

  METHOD void load(const __half* queries, const Tile& tile, const Shape& shape, int kv) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, group = shape.heads / shape.kv_heads;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const Pair pair = Pair::of(tile, group, g + 8 * half);
      const size_t row = tile.row + (pair.used ? pair.row : 0);
      const __half* from = queries + (row * shape.heads + kv * group + pair.head) * DIM + 8 * t;
#pragma unroll
      for (int c = 0; c < DIM / 32; c++) {
        const uint4 x = read16(from + 32 * c);
        q[2 * c][half] = x.x;
        q[2 * c][2 + half] = x.y;
        q[2 * c + 1][half] = x.z;
        q[2 * c + 1][2 + half] = x.w;
      }
    }
  }
};

// Halves of `pair` that lie at `first` or after it become 0; the pair's own places are `place` and the next.
DEVICE u32 only_before(u32 pair, int place, int end) {
  if (place >= end) return 0;
  return place + 1 >= end ? pair & 0xffffu : pair;
}

// Adds the block whose first position is `base`. Column 2 t + e of score tile i is position 8 t + 2 i + e: so a lane's
// weights are those of its eight neighbours 8 t .. 8 t + 7, which is what it reads of the values.
template <int DIM>
DEVICE void look(const Fragments<DIM>& f, const __half* keys, int base, const int last[2], int end, float scale,
                 Gathered<DIM>& into) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float score[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const __half* key = keys + (8 * (g / 2) + 2 * i + g % 2) * DIM + 8 * t;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      score[i][k] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < DIM / 32; c++) {
      const uint4 x = read16(key + 32 * c);
      const u32 first[2] = {x.x, x.y}, second[2] = {x.z, x.w};
      mma(score[i], f.q[2 * c], first);
      mma(score[i], f.q[2 * c + 1], second);
    }
  }
  u32 weights[2][4];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float most = into.most[half];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float& x = score[i][2 * half + e];
        // A score that is not a number must reach the logits, so the largest is not asked of fmaxf alone.
        x = base + 8 * t + 2 * i + e > last[half] ? -INFINITY : x * scale;
        most = x > most || x != x ? x : most;
      }
    }
#pragma unroll
    for (int width = 1; width < 4; width *= 2) {
      const float other = shuffle_xor(most, width);
      most = other > most || other != other ? other : most;
    }
    const float old = shrink(into.most[half], most);
    into.total[half] *= old;
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
      into.sum[n][2 * half] *= old;
      into.sum[n][2 * half + 1] *= old;
    }
    into.most[half] = most;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float w[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float x = score[i][2 * half + e];
        w[e] = x == -INFINITY ? 0.0f : exp2f(x - most);
        into.total[half] += w[e];
      }
      weights[i / 2][2 * (i % 2) + half] = pack_halves(w[0], w[1]);
    }
  }
  const __half* values = keys + BLOCK * DIM + g * BLOCK + 8 * t;
  const int place = 8 * t, seen = end - base;
#pragma unroll
  for (int n = 0; n < DIM / 8; n++) {
    const uint4 x = read16(values + 8 * n * BLOCK);
    const u32 first[2] = {only_before(x.x, place, seen), only_before(x.y, place + 2, seen)};
    const u32 second[2] = {only_before(x.z, place + 4, seen), only_before(x.w, place + 6, seen)};
    mma(into.sum[n], weights[0], first);
    mma(into.sum[n], weights[1], second);
  }
}

// Gathers part `part` of a tile's positions.
template <int DIM>
DEVICE void gather(const Fragments<DIM>& f, const __half* cache, const Tile& tile, const Shape& shape, int kv, int part,
                   Gathered<DIM>& into) {
  const int g = threadIdx.x % 32 / 4, group = shape.heads / shape.kv_heads, end = tile.start + tile.rows;
  const int last[2] = {tile.start + g / group, tile.start + (g + 8) / group};
  into.clear();
  for (int base = part * PART; base < min(end, (part + 1) * PART); base += BLOCK) {
    const size_t block = tile.blocks[base / BLOCK];
    const __half* keys = cache + block * shape.stride + static_cast<size_t>(kv) * 2 * BLOCK * DIM;
    look<DIM>(f, keys, base, last, end, shape.scale * LOG2E, into);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    into.total[half] += shuffle_xor(into.total[half], 1);
    into.total[half] += shuffle_xor(into.total[half], 2);
  }
}

DEVICE Tile tile_of(const int* tiles, const int* tables) {
  const int* t = tiles + 4 * blockIdx.x;
  return {t[0], t[1], t[2], tables + t[3]};
}

// Grid: tiles, key-value heads, parts.
template <int DIM>
DEVICE void attention_split(const __half* queries, const __half* cache, const int* tiles, const int* tables,
                            float* partial, const Shape& shape, int parts) {
  const Tile tile = tile_of(tiles, tables);
  const int kv = blockIdx.y, part = blockIdx.z, group = shape.heads / shape.kv_heads;
  if (part * PART >= tile.start + tile.rows) {
    return;
  }
  Fragments<DIM> f;
  f.load(queries, tile, shape, kv);
  Gathered<DIM> found;
  gather<DIM>(f, cache, tile, shape, kv, part, found);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const Pair pair = Pair::of(tile, group, g + 8 * half);
    if (pair.used) {
      const size_t at = static_cast<size_t>(tile.row + pair.row) * shape.heads + kv * group + pair.head;
      float* to = partial + (at * parts + part) * (DIM + 2);
#pragma unroll
      for (int n = 0; n < DIM / 8; n++) {
        to[8 * n + 2 * t] = found.sum[n][2 * half];
        to[8 * n + 2 * t + 1] = found.sum[n][2 * half + 1];
      }
      if (t == 0) {
        to[DIM] = found.most[half];
        to[DIM + 1] = found.total[half];
      }
    }
  }
}

// The factors by which what was gathered before, and the next part, are multiplied, and the new largest score.
struct Fold {
  float before, next, most;
  DEVICE Fold of(float before, float next) {
    const float most = next > before || next != next ? next : before;
    return {shrink(before, most), shrink(next, most), most};
  }
};

// Grid: rows, heads; a thread has one dimension.
template <int DIM>
DEVICE void fold_parts(const float* partial, const int* places, __half* out, int heads, int parts) {
  const size_t at = static_cast<size_t>(blockIdx.x) * heads + blockIdx.y;
  const float* from = partial + at * parts * (DIM + 2);
  const int count = places[2 * blockIdx.x] / PART + 1;
  float most = -INFINITY, total = 0.0f, sum = 0.0f;
  for (int part = 0; part < count; part++, from += DIM + 2) {
    const Fold fold = Fold::of(most, from[DIM]);
    total = fmaf(from[DIM + 1], fold.next, total * fold.before);
    sum = fmaf(from[threadIdx.x], fold.next, sum * fold.before);
    most = fold.most;
  }
  out[at * DIM + threadIdx.x] = to_half(sum / total);
}

// Grid: tiles, key-value heads.
template <int DIM>
DEVICE void attention_whole(const __half* queries, const __half* cache, const int* tiles, const int* tables, __half* out,
                            const Shape& shape) {
  const Tile tile = tile_of(tiles, tables);
  const int kv = blockIdx.y, group = shape.heads / shape.kv_heads;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Fragments<DIM> f;
  f.load(queries, tile, shape, kv);
  // What the parts before gave waits in shared memory, a lane's numbers 32 apart: registers hold one part's.
  SHARED(float, sums, DIM / 8 * 4 * 32);
  Gathered<DIM> found;
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
#pragma unroll
  for (int n = 0; n < DIM / 2; n++) {
    sums[n * 32 + lane] = 0.0f;
  }
  for (int part = 0; part * PART < tile.start + tile.rows; part++) {
    gather<DIM>(f, cache, tile, shape, kv, part, found);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      // A pair that sees nothing of this part is done, as it is for `fold_parts`.
      if (part * PART <= tile.start + (g + 8 * half) / group) {
        const Fold fold = Fold::of(most[half], found.most[half]);
        total[half] = fmaf(found.total[half], fold.next, total[half] * fold.before);
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& sum = sums[(4 * n + 2 * half + e) * 32 + lane];
            sum = fmaf(found.sum[n][2 * half + e], fold.next, sum * fold.before);
          }
        }
        most[half] = fold.most;
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const Pair pair = Pair::of(tile, group, g + 8 * half);
    if (pair.used) {
      const size_t at = static_cast<size_t>(tile.row + pair.row) * shape.heads + kv * group + pair.head;
#pragma unroll
      for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          out[at * DIM + 8 * n + 2 * t + e] = to_half(sums[(4 * n + 2 * half + e) * 32 + lane] / total[half]);
        }
      }
    }
  }
}

#define ATTENTION(dim)                                                                                                \
  KERNEL(32, 8)                                                                                                       \
  attention_split_##dim(const __half* queries, const __half* cache, const int* tiles, const int* tables,              \
                        float* partial, int heads, int kv_heads, int stride, float scale, int parts) {                \
    attention_split<dim>(queries, cache, tiles, tables, partial, {heads, kv_heads, stride, scale}, parts);            \
  }                                                                                                                   \
  KERNEL(dim, 1)                                                                                                      \
  attention_fold_##dim(const float* partial, const int* places, __half* out, int heads, int parts) {                  \
    fold_parts<dim>(partial, places, out, heads, parts);                                                              \
  }                                                                                                                   \
  KERNEL(32, 8)                                                                                                       \
  attention_whole_##dim(const __half* queries, const __half* cache, const int* tiles, const int* tables, __half* out, \
                        int heads, int kv_heads, int stride, float scale) {                                           \
    attention_whole<dim>(queries, cache, tiles, tables, out, {heads, kv_heads, stride, scale});                       \
  }

ATTENTION(64)
ATTENTION(128)
