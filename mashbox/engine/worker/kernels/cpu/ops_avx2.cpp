// The kernels for AVX2. This file alone is compiled with the flags for it, so that nothing else uses it.
#if defined(__x86_64__)
#include "lanes_avx2.h"

#define TABLE kAvx2
#include "ops.inc"
#endif
