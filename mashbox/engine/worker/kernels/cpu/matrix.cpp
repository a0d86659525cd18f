// One product and one draw by themselves, and the choice of an instruction set.
#include "mashbox_cpu.h"
#include "ops.h"
#include "team.h"

namespace mashbox {

const Ops* ops_for(int instructions) {
    if (instructions < 0 || instructions > mashbox_best()) return nullptr;
#if defined(__x86_64__)
    if (instructions == 2) return &kAvx512;
    if (instructions == 1) return &kAvx2;
#endif
    return &kPlain;
}

}  // namespace mashbox

using namespace mashbox;

extern "C" int mashbox_best(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni")) {
        return 2;
    }
    return avx2 ? 1 : 0;
#else
    return 0;
#endif
}

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
