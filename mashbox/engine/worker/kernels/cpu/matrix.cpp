// One product and one draw by themselves, and the choice of an instruction set.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "mashbox_cpu.h"
#include "ops.h"
#include "team.h"

namespace mashbox {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

// Asked for by hand: compilers that know the instructions may not know their name here yet.
bool has_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

const Ops* ops_for(int instructions) {
    switch (instructions) {
        case 0: return &kPlain;
#if defined(__x86_64__)
        case 1: return has_avx2() ? &kAvx2 : nullptr;
        case 2: return has_avx_vnni() ? kAvxVnni : nullptr;
        case 3: return has_avx512() ? &kAvx512 : nullptr;
#endif
        default: return nullptr;
    }
}

}  // namespace mashbox

using namespace mashbox;

extern "C" int mashbox_has(int instructions) { return ops_for(instructions) != nullptr; }

extern "C" int mashbox_product(const mashbox_matrix* matrix, const float* x, int64_t count, int narrow,
                               int threads, int instructions, float* out) {
    const Ops* ops = ops_for(instructions);
    if (!ops || threads < 1) return -1;
    const Matrix m{matrix->kind, matrix->rows, matrix->cols, matrix->data};
    RowStore store;
    const Rows rows = store.rows(count, m.cols, layout(m.kind).floating(), narrow != 0);
    ops->quantise(x, 0, count * m.cols / kGroup, rows);
    const int64_t panels = panels_of(m);
    Team team(threads);
    team.run([&](int member) {
        ops->product(m, begin_of(panels, member, threads), begin_of(panels, member + 1, threads), rows, count, out,
                     m.rows, false);
    });
    return 0;
}

extern "C" int64_t mashbox_draw(const float* row, int64_t n, float temperature, int64_t top_k, double top_p,
                                double min_p, double draw, int instructions) {
    const Ops* ops = ops_for(instructions);
    return ops && n > 0 ? ops->draw(row, n, {temperature == 0.0f, temperature, top_k, top_p, min_p, draw}) : -1;
}
