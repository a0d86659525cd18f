// The kernels for AVX-512 with VNNI: those of AVX2 with one instruction for a product and its sum, which
// is exact in whole numbers, so the results are the same bits.
#if defined(__x86_64__)
#include "lanes_avx2.h"

#define TABLE kAvx512
#include "ops.inc"
#endif
