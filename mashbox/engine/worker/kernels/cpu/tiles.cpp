// Keys between the order of positions and that of tiles (ops.h says what a tile is).
#include "mashbox_cpu.h"
#include "ops.h"

namespace mashbox {
namespace {

// Calls move(key in its tile, row, numbers) with the first of a position's numbers in either.
template <class Keys, class Rows, class Move>
void each(Keys* keys, int64_t heads, int64_t ctx, int64_t dim, int64_t start, int64_t count, Rows* rows, Move move) {
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = start + i;
            move(keys + h * ctx * dim + tile_at(at, dim), rows + (h * count + i) * dim);
        }
    }
}

}  // namespace
}  // namespace mashbox

using namespace mashbox;

extern "C" void mashbox_keys_in(uint16_t* keys, int64_t heads, int64_t ctx, int64_t dim, int64_t start, int64_t count,
                                const uint16_t* rows) {
    each(keys, heads, ctx, dim, start, count, rows, [dim](uint16_t* key, const uint16_t* row) {
        for (int64_t d = 0; d < dim; ++d) key[d * kTile] = row[d];
    });
}

extern "C" void mashbox_keys_out(const uint16_t* keys, int64_t heads, int64_t ctx, int64_t dim, int64_t start,
                                 int64_t count, uint16_t* rows) {
    each(keys, heads, ctx, dim, start, count, rows, [dim](const uint16_t* key, uint16_t* row) {
        for (int64_t d = 0; d < dim; ++d) row[d] = key[d * kTile];
    });
}
