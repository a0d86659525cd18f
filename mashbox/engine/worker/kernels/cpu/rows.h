// Rows of activations as the products take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout.h"

namespace mashbox {

// Rows of `cols` numbers, in groups of 32: x = scale * q. The numbers of a group lie in the order that
// layout.h gives. All but `x` are indexed by the group, counted over all rows.
struct Rows {
    int64_t cols;
    int16_t* q;     // [32], or null: then
    int8_t* byte;   // [32] are the numbers q
    float* scale;   // NaN where a number of the group was not finite
    float* sum;     // scale times the sum of q
    int32_t* minus; // [3] the sums of q, negated: of the group, of its inputs 0..15, and of 16..31
    float* x;       // the numbers themselves, for floating weights; null where no matrix has them
};

// The memory behind Rows.
class RowStore {
   public:
    // `narrow`: in 8 bits.
    Rows rows(int64_t count, int64_t cols, bool floating, bool narrow) {
        const size_t groups = size_t(count * cols / kGroup);
        if (narrow) {
            byte_.resize(groups * kGroup);
        } else {
            q_.resize(groups * kGroup);
        }
        scale_.resize(groups);
        sum_.resize(groups);
        minus_.resize(3 * groups);
        if (floating) x_.resize(groups * kGroup);
        return Rows{cols,         narrow ? nullptr : q_.data(), narrow ? byte_.data() : nullptr,
                    scale_.data(), sum_.data(),                  minus_.data(),
                    floating ? x_.data() : nullptr};
    }

   private:
    std::vector<int16_t> q_;
    std::vector<int8_t> byte_;
    std::vector<float> scale_, sum_, x_;
    std::vector<int32_t> minus_;
};

}  // namespace mashbox
