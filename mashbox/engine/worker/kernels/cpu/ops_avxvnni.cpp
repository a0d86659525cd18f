// The kernels for AVX2 with VNNI in 256 bits, which processors have that lack AVX-512. A compiler that does not know it
// leaves this set out.
#include "ops.h"

#if defined(__AVXVNNI__)
#include "lanes_avx2.h"

#define TABLE kAvxVnniTable
#include "ops.inc"

namespace mashbox {
const Ops* const kAvxVnni = &kAvxVnniTable;
}
#else
namespace mashbox {
const Ops* const kAvxVnni = nullptr;
}
#endif
