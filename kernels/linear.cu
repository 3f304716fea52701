// Linear layers, y = x W^T (+ bias): 4-bit (AWQ) or fp16 weights, fp16 activations, fp32 sums, on the tensor cores.
//
//   x (rows, inputs) fp16     factors (rows,) fp32 or null: the true x is x * factor     bias (outputs,) fp32 or null
//   y (rows, outputs) fp32
//
// One order of sums for all. The inputs are cut in SPLITS = 8 parts at places that depend on the shape alone. Within a part
// the tensor core adds 16 inputs at a time, ascending; a group's sum of (q - z) x, whose factors are exact in fp16, is
// multiplied by its scale and added to the part's sum; the parts are added in their order. Weights are the 16 rows of
// mma's `a` and tokens the 8 columns of its `b`: one token pads to 8, and a token's column does not know the others. So
// its bits are the same in a batch of 1 and in a prompt of 512, though different kernels compute them:
//
//   split  A block has 8 warps, one for each part; they meet in shared memory. For few tokens, where reading weights is
//          all: every warp streams its own part, 512 bytes at a time, and no partial sum leaves the block.
//   large  A block computes 128 outputs x 64 tokens and walks through the parts; x goes through shared memory, twice
//          buffered, for 4 warps use each of its numbers. For prompts, where the tensor cores are all.
//
// 4-bit layout: `words` has, for each tile of 16 outputs and unit of 64 inputs, a uint4 per lane (g = lane / 4,
// t = lane % 4). Its word 2 h + j holds the inputs k = 32 h + 8 t + 4 j + 0..3 of the outputs g and g + 8, at nibbles that
// and_or takes out in pairs: nibble i, then i + 4, for i = 0: (g; k, k + 1), 1: (g + 8; k, k + 1), 2: (g; k + 2, k + 3),
// 3: (g + 8; k + 2, k + 3). This deals the 64 inputs of a unit out to the fragments in another order than mma's own, and
// x is read in the same: 16 bytes per lane, 64 in a row.
//   scales (groups, outputs) fp16     zeros (groups, outputs / 8): nibble i is that of output 8 w + i
// fp16 layout: (outputs, inputs), as stored. Outputs come in multiples of 16 (padded), inputs in multiples of 64.
//
// 0x6400 is 1024 in fp16 and its last four bits count ones: 0x6400 | q is 1024 + q, minus 1024 + z leaves q - z.
//
// Floor: per pass 0.5 bytes per weight, and 2.5 per 128 for scales and zeros; 2 FLOP per weight and token.
#include "ptx.cuh"

constexpr int SPLITS = 8;
constexpr int UNIT = 64;

// A pass's activations and results.
struct Rows {
  const __half* x;
  const float* factors;
  const float* bias;
  float* y;
  int rows, inputs, outputs;
};

// Where part `s` starts, in units, if cuts must lie at multiples of `quantum` units.
DEVICE int cut(int inputs, int s, int quantum) {
  const int pieces = inputs / UNIT / quantum;
  return static_cast<int>(static_cast<long long>(pieces) * s / SPLITS) * quantum;
}

DEVICE uint4 load16(const void* at) { return *static_cast<const uint4*>(at); }

// 4-bit weights in groups of GROUP inputs; a lane's view of one tile.
template <int GROUP>
struct Awq {
  static constexpr int QUANTUM = GROUP > UNIT ? GROUP / UNIT : 1;
  static constexpr int HALVES = GROUP / 32;
  struct Weights {
    const uint4* words;
    const unsigned short* scales;
    const u32* zeros;
  };
  struct Unit {
    uint4 words;
  };

  const uint4* words;
  const unsigned short* scales;
  const u32* zeros;
  int outputs, g;
  // Of the outputs g and g + 8: 1024 + z, twice; and the scales, both in one.
  u32 zero[2], scale;

  DEVICE Awq at(const Weights& w, int tile, int inputs, int outputs) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    Awq view;
    view.words = w.words + static_cast<size_t>(tile) * (inputs / UNIT) * 32 + lane;
    view.scales = w.scales + tile * 16 + g;
    view.zeros = w.zeros + tile * 2;
    view.outputs = outputs;
    view.g = g;
    return view;
  }

  METHOD Unit load(int unit) const { return {load16(words + static_cast<size_t>(unit) * 32)}; }

  // Before half-unit `h` of `unit`: where a group starts, its scales and zeros.
  METHOD void begin(int unit, int h) {
    const int half = 2 * unit + h;
    if (half % HALVES == 0) {
      const size_t group = half / HALVES;
      scale = scales[group * outputs] | static_cast<u32>(scales[group * outputs + 8]) << 16;
      for (int i = 0; i < 2; i++) {
        const u32 z = zeros[group * (outputs / 8) + i] >> (4 * g) & 15;
        zero[i] = (0x6400u | z) * 0x10001u;
      }
    }
  }

  // The fragment of step `j` of half-unit `h`.
  METHOD void fragment(const Unit& unit, int h, int j, u32 a[4]) const {
    const u32 word = h ? (j ? unit.words.w : unit.words.z) : (j ? unit.words.y : unit.words.x);
    for (int i = 0; i < 4; i++) {
      a[i] = subtract_halves(and_or(word >> (4 * i), 0x000f000fu, 0x64006400u), zero[i % 2]);
    }
  }

  // After half-unit `h`: where a group ends, its sum goes to the part's.
  template <int NT>
  METHOD void end(int unit, int h, float sum[NT][4], float part[NT][4]) const {
    if ((2 * unit + h + 1) % HALVES == 0) {
      for (int n = 0; n < NT; n++) {
        for (int i = 0; i < 4; i++) {
          part[n][i] = fmaf(i < 2 ? low_half(scale) : high_half(scale), sum[n][i], part[n][i]);
          sum[n][i] = 0.0f;
        }
      }
    }
  }
};

// fp16 weights: no groups, the tensor core adds to the part's sum.
struct Dense {
  static constexpr int QUANTUM = 1;
  struct Weights {
    const __half* numbers;
  };
  struct Unit {
    uint4 low[2], high[2];
  };

  const __half* low;
  const __half* high;

  DEVICE Dense at(const Weights& w, int tile, int inputs, int) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Dense view;
    view.low = w.numbers + static_cast<size_t>(tile * 16 + g) * inputs + 8 * t;
    view.high = view.low + static_cast<size_t>(8) * inputs;
    return view;
  }

  METHOD Unit load(int unit) const {
    const int k = unit * UNIT;
    return {{load16(low + k), load16(low + k + 32)}, {load16(high + k), load16(high + k + 32)}};
  }

  METHOD void begin(int, int) {}

  METHOD void fragment(const Unit& unit, int h, int j, u32 a[4]) const {
    const uint4 low = unit.low[h], high = unit.high[h];
    a[0] = j ? low.z : low.x;
    a[1] = j ? high.z : high.x;
    a[2] = j ? low.w : low.y;
    a[3] = j ? high.w : high.y;
  }

  template <int NT>
  METHOD void end(int, int, float sum[NT][4], float part[NT][4]) const {
    for (int n = 0; n < NT; n++) {
      for (int i = 0; i < 4; i++) {
        part[n][i] = sum[n][i];
      }
    }
  }
};

// Adds to `part` the products of one unit; `tokens[n][h]` are a lane's 8 inputs of token tile n in half-unit h.
template <class W, int MT, int NT>
DEVICE void multiply(W view[MT], const typename W::Unit units[MT], const uint4 tokens[2][NT], int unit,
                     float sum[MT][NT][4], float part[MT][NT][4]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
      view[m].begin(unit, h);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        u32 a[4];
        view[m].fragment(units[m], h, j, a);
#pragma unroll
        for (int n = 0; n < NT; n++) {
          const uint4 x = tokens[h][n];
          const u32 b[2] = {j ? x.z : x.x, j ? x.w : x.y};
          mma(sum[m][n], a, b);
        }
      }
      view[m].template end<NT>(unit, h, sum[m], part[m]);
    }
  }
}

template <int MT, int NT>
DEVICE void clear(float numbers[MT][NT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        numbers[m][n][i] = 0.0f;
      }
    }
  }
}

DEVICE void store(const Rows& r, int token, int output, float total) {
  if (token < r.rows && output < r.outputs) {
    const float factor = r.factors ? r.factors[token] : 1.0f;
    const float bias = r.bias ? r.bias[output] : 0.0f;
    r.y[static_cast<size_t>(token) * r.outputs + output] = fmaf(total, factor, bias);
  }
}

// A block has 16 MT outputs (blockIdx.x) and 8 NT tokens (blockIdx.y), a warp one part of the inputs.
template <class W, int MT, int NT>
DEVICE void split(const typename W::Weights& weights, const Rows& r, int padded) {
  SHARED(float, totals, 16 * MT * 8 * NT);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int tile = blockIdx.x * MT, token = blockIdx.y * 8 * NT;
  W view[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) {
    view[m] = W::at(weights, min(tile + m, padded / 16 - 1), r.inputs, padded);
  }
  const __half* x[NT];
#pragma unroll
  for (int n = 0; n < NT; n++) {
    // Columns past the last token compute what nobody stores.
    x[n] = r.x + static_cast<size_t>(min(token + 8 * n + g, r.rows - 1)) * r.inputs + 8 * t;
  }
  float sum[MT][NT][4], part[MT][NT][4];
  clear<MT, NT>(sum);
  clear<MT, NT>(part);
  const int end = cut(r.inputs, warp + 1, W::QUANTUM);
  // Two units under way at a time, where registers allow it.
#pragma unroll(MT * NT < 16 ? 2 : 1)
  for (int unit = cut(r.inputs, warp, W::QUANTUM); unit < end; unit++) {
    typename W::Unit units[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
      units[m] = view[m].load(unit);
    }
    uint4 tokens[2][NT];
#pragma unroll
    for (int n = 0; n < NT; n++) {
      tokens[0][n] = load16(x[n] + unit * UNIT);
      tokens[1][n] = load16(x[n] + unit * UNIT + 32);
    }
    multiply<W, MT, NT>(view, units, tokens, unit, sum, part);
  }
  for (int s = 0; s < SPLITS; s++) {
    if (warp == s) {
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int at = (8 * n + 2 * t + i % 2) * 16 * MT + 16 * m + g + 8 * (i / 2);
            totals[at] = (s == 0 ? 0.0f : totals[at]) + part[m][n][i];
          }
        }
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 16 * MT * 8 * NT; i += 32 * SPLITS) {
    store(r, token + i / (16 * MT), tile * 16 + i % (16 * MT), totals[i]);
  }
}

// Tokens and outputs of a block of `large`, and halves from token to token in shared memory: 64 bytes more than a unit,
// so that the 16-byte pieces that 8 lanes read at once lie in different banks.
constexpr int LARGE_TOKENS = 64;
constexpr int LARGE_OUTPUTS = 128;
constexpr int PITCH = UNIT + 32;

// Starts copying a unit of x for 64 tokens: 256 threads, 2 pieces of 16 bytes each.
DEVICE void stage(const Rows& r, int token, int unit, __half* to) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int piece = threadIdx.x + 256 * i, row = piece / 8, column = piece % 8 * 8;
    const size_t from = static_cast<size_t>(min(token + row, r.rows - 1)) * r.inputs + unit * UNIT + column;
    copy_async(to + row * PITCH + column, r.x + from);
  }
  copy_commit();
}

// A block has 64 tokens (blockIdx.x, so that neighbours share weights) and 128 outputs (blockIdx.y); a warp has 32 of
// each.
template <class W>
DEVICE void large(const typename W::Weights& weights, const Rows& r, int padded) {
  constexpr int MT = 2, NT = 4;
  SHARED(__half, staged, 2 * LARGE_TOKENS * PITCH);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int token = blockIdx.x * LARGE_TOKENS, mine = warp / 4 * 32;
  const int tile = blockIdx.y * (LARGE_OUTPUTS / 16) + warp % 4 * MT;
  W view[MT];
  typename W::Unit units[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) {
    view[m] = W::at(weights, min(tile + m, padded / 16 - 1), r.inputs, padded);
    units[m] = view[m].load(0);
  }
  float sum[MT][NT][4], part[MT][NT][4], total[MT][NT][4];
  clear<MT, NT>(sum);
  clear<MT, NT>(part);
  clear<MT, NT>(total);
  stage(r, token, 0, staged);
  const int last = r.inputs / UNIT - 1;
  // Parts may be empty: those before the first unit are.
  int s = 0;
  while (cut(r.inputs, s + 1, W::QUANTUM) == 0) {
    s++;
  }
  for (int unit = 0; unit <= last; unit++) {
    copy_wait<0>();
    // All have their copies of this unit, and have read those of the one before.
    __syncthreads();
    if (unit < last) {
      stage(r, token, unit + 1, staged + (unit + 1) % 2 * LARGE_TOKENS * PITCH);
    }
    uint4 tokens[2][NT];
#pragma unroll
    for (int n = 0; n < NT; n++) {
      const __half* row = staged + (unit % 2 * LARGE_TOKENS + mine + 8 * n + g) * PITCH + 8 * t;
      tokens[0][n] = load16(row);
      tokens[1][n] = load16(row + 32);
    }
    typename W::Unit now[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
      now[m] = units[m];
      units[m] = view[m].load(min(unit + 1, last));
    }
    multiply<W, MT, NT>(view, now, tokens, unit, sum, part);
    for (; s < SPLITS && cut(r.inputs, s + 1, W::QUANTUM) == unit + 1; s++) {
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            total[m][n][i] += part[m][n][i];
            sum[m][n][i] = part[m][n][i] = 0.0f;
          }
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        store(r, token + mine + 8 * n + 2 * t + i % 2, (tile + m) * 16 + g + 8 * (i / 2), total[m][n][i]);
      }
    }
  }
}

#define ROWS                                                                                                          \
  int padded, const __half *x, const float *factors, const float *bias, float *y, int rows, int inputs, int outputs
#define GIVEN {x, factors, bias, y, rows, inputs, outputs}
#define PACKED const uint4 *words, const unsigned short *scales, const u32 *zeros

// `wide`: tiles of outputs of a block for 32 tokens. Groups of 32 have twice the sums to move, and 4 tiles do not fit.
#define AWQ(group, wide)                                                                                              \
  KERNEL(256, 2) linear_awq##group##_8(PACKED, ROWS) {                                                                \
    split<Awq<group>, 2, 1>({words, scales, zeros}, GIVEN, padded);                                                   \
  }                                                                                                                   \
  KERNEL(256, 1) linear_awq##group##_16(PACKED, ROWS) {                                                               \
    split<Awq<group>, 4, 2>({words, scales, zeros}, GIVEN, padded);                                                   \
  }                                                                                                                   \
  KERNEL(256, 1) linear_awq##group##_32(PACKED, ROWS) {                                                               \
    split<Awq<group>, wide, 4>({words, scales, zeros}, GIVEN, padded);                                                   \
  }                                                                                                                   \
  KERNEL(256, 1) linear_awq##group##_large(PACKED, ROWS) {                                                            \
    large<Awq<group>>({words, scales, zeros}, GIVEN, padded);                                                         \
  }

AWQ(128, 4)
AWQ(64, 4)
AWQ(32, 2)

KERNEL(256, 2) linear_fp16_8(const __half* numbers, ROWS) { split<Dense, 2, 1>({numbers}, GIVEN, padded); }
KERNEL(256, 1) linear_fp16_16(const __half* numbers, ROWS) { split<Dense, 4, 2>({numbers}, GIVEN, padded); }
KERNEL(256, 1) linear_fp16_32(const __half* numbers, ROWS) { split<Dense, 4, 4>({numbers}, GIVEN, padded); }
KERNEL(256, 1) linear_fp16_large(const __half* numbers, ROWS) { large<Dense>({numbers}, GIVEN, padded); }
