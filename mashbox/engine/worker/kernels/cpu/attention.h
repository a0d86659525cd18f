// Who computes which part of a step's attention.
#pragma once

#include <cstdint>
#include <vector>

#include "mashbox_cpu.h"
#include "ops.h"

namespace mashbox {

// The attention of a step's rows in one layer after the other. Few rows have their spans computed apart, so
// that one long context keeps a whole team busy; many rows, a prompt's, are shared out by themselves. Heads
// that share keys and values, and neighbouring rows of a slot, have them read together.
class Attention {
   public:
    Attention(const mashbox_model& model, const Ops& ops, int threads);

    // For the rows of a step: done once, by one thread.
    void prepare(int64_t rows, const int64_t* slot, const int64_t* position);
    // Pieces of work in a layer, to be computed by any member each.
    int64_t pieces(const mashbox_layer& layer) const;
    // `queries` [rows, width], a row's heads first; answers into out [rows, heads * head_size] if it is not
    // for `finish` to do.
    void compute(int member, const mashbox_layer& layer, int64_t piece, const float* queries, int64_t width,
                 float* out);
    // Whether a barrier and `finish` for each row and head come after all pieces.
    bool apart() const { return apart_; }
    void finish(const mashbox_layer& layer, int64_t row, int64_t head, float* out);

   private:
    // Rows of one slot, and the spans from..to - 1 of its positions.
    struct Piece {
        int64_t row, rows, from, to;
    };
    struct Plan {
        int64_t window;
        std::vector<Piece> pieces;
    };

    void plan(Plan& plan, int64_t rows) const;
    const Plan& plan_of(const mashbox_layer& layer) const;
    int64_t first(int64_t row, int64_t window) const;
    float* part(int64_t row, int64_t head, int64_t span);
    // A head's answer, of all parts joined, into out.
    void conclude(float* whole, int64_t row, int64_t head, float* out) const;

    const mashbox_model m_;
    const Ops& ops_;
    const int64_t group_;      // heads that share keys and values
    const int64_t together_;   // rows of a piece at most
    const int64_t part_size_;
    std::vector<Plan> plans_;  // one for each width of window
    std::vector<std::vector<float>> scratch_, later_;  // of each member
    std::vector<std::vector<Query>> query_;
    std::vector<float> parts_;
    bool apart_ = true;
    int64_t spans_ = 1;
    const int64_t *slot_ = nullptr, *position_ = nullptr;
};

}  // namespace mashbox
