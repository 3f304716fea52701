// All kernels, as one unit: what becomes a module on a GPU.
#include "argmax.cu"
#include "attention.cu"
#include "embed.cu"
#include "linear.cu"
#include "norm.cu"
#include "rope.cu"
#include "silu.cu"
