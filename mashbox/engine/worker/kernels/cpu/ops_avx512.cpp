// The kernels for AVX-512 with VNNI: those of AVX2, with products of many rows over two panels in one register.
#if defined(__x86_64__)
#include "lanes_avx2.h"

#define TABLE kAvx512
#include "ops.inc"
#endif
