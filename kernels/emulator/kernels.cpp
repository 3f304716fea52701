// The kernels, compiled for the emulator, and the table that names them.
#define CUEMU
#include "../kernels.cu"

namespace emulator {

#define ENTRY(name) {#name, [](void** arguments) { call(name, arguments); }, count(name)}
#define SIZES(format) \
  ENTRY(linear_##format##_8), ENTRY(linear_##format##_16), ENTRY(linear_##format##_32), ENTRY(linear_##format##_large)
#define HEADS(dim) ENTRY(attention_split_##dim), ENTRY(attention_fold_##dim), ENTRY(attention_whole_##dim)

const Entry ENTRIES[] = {
    ENTRY(embed),  ENTRY(rms_norm),  ENTRY(rope),   ENTRY(silu), ENTRY(argmax), SIZES(awq128),
    SIZES(awq64),  SIZES(awq32), SIZES(fp16), HEADS(64),   HEADS(128),
};
const int ENTRY_COUNT = sizeof ENTRIES / sizeof *ENTRIES;

}  // namespace emulator
