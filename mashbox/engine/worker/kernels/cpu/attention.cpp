#include "attention.h"

#include <algorithm>

namespace mashbox {
namespace {

constexpr int64_t kApart = 16;    // rows of a step whose spans are pieces of their own
constexpr int64_t kQueries = 32;  // of a piece, if the heads of one row are fewer

}  // namespace

Attention::Attention(const mashbox_model& model, const Ops& ops, int threads)
    : m_(model),
      ops_(ops),
      group_(model.heads / model.kv_heads),
      together_(std::max<int64_t>(kQueries / group_, 1)),
      part_size_(kPart + model.head_dim),
      scratch_(size_t(threads)),
      later_(size_t(threads)),
      query_(size_t(threads)) {
    for (int64_t l = 0; l < m_.layers; ++l) {
        const int64_t window = m_.layer[l].window;
        const auto same = [&](const Plan& plan) { return plan.window == window; };
        if (std::none_of(plans_.begin(), plans_.end(), same)) plans_.push_back({window, {}});
    }
    const int64_t queries = together_ * group_;
    const int64_t near = std::max(kNear, kTile * m_.head_dim);
    for (auto& scratch : scratch_) scratch.resize(size_t(queries * kSpan + near));
    for (auto& later : later_) later.resize(size_t(queries * part_size_));
    for (auto& query : query_) query.resize(size_t(queries));
    // Room for the longest context: untouched memory costs nothing, and growing would copy, and take twice as much.
    parts_.reserve(size_t(kApart * m_.heads * (m_.ctx / kSpan + 1) * part_size_));
}

void Attention::prepare(int64_t rows, const int64_t* slot, const int64_t* position) {
    slot_ = slot;
    position_ = position;
    apart_ = rows <= kApart;
    spans_ = apart_ ? *std::max_element(position, position + rows) / kSpan + 1 : 1;
    const size_t needed = size_t(rows * m_.heads * spans_ * part_size_);
    if (parts_.size() < needed) parts_.resize(needed);
    for (Plan& each : plans_) plan(each, rows);
}

void Attention::plan(Plan& plan, int64_t rows) const {
    plan.pieces.clear();
    for (int64_t row = 0, next; row < rows; row = next) {
        for (next = row + 1; next < rows && next - row < together_ && slot_[next] == slot_[row];) ++next;
        const int64_t from = first(row, plan.window) / kSpan, to = position_[next - 1] / kSpan + 1;
        if (!apart_) plan.pieces.push_back({row, next - row, from, to});
        for (int64_t span = from; apart_ && span < to; ++span) {
            plan.pieces.push_back({row, next - row, span, span + 1});
        }
    }
}

const Attention::Plan& Attention::plan_of(const mashbox_layer& layer) const {
    size_t i = 0;
    while (plans_[i].window != layer.window) ++i;
    return plans_[i];
}

int64_t Attention::pieces(const mashbox_layer& layer) const {
    return int64_t(plan_of(layer).pieces.size()) * m_.kv_heads;
}

// The first position that a row sees.
int64_t Attention::first(int64_t row, int64_t window) const {
    return window ? std::max<int64_t>(position_[row] + 1 - window, 0) : 0;
}

float* Attention::part(int64_t row, int64_t head, int64_t span) {
    return parts_.data() + ((row * m_.heads + head) * spans_ + (apart_ ? span : 0)) * part_size_;
}

void Attention::compute(int member, const mashbox_layer& layer, int64_t number, const float* queries, int64_t width,
                        float* out) {
    const Piece piece = plan_of(layer).pieces[size_t(number / m_.kv_heads)];
    const int64_t shared = number % m_.kv_heads, count = piece.rows * group_;
    const int64_t pool = (slot_[piece.row] * m_.kv_heads + shared) * m_.ctx * m_.head_dim;
    std::vector<Query>& query = query_[size_t(member)];
    for (int64_t span = piece.from; span < piece.to; ++span) {
        const int64_t begin = span * kSpan, end = std::min(begin + kSpan, position_[piece.row + piece.rows - 1] + 1);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = piece.row + i / group_, head = shared * group_ + i % group_;
            const int64_t start = first(row, layer.window);
            // Not its first span, or one that it does not see: aside.
            const bool aside = !apart_ && span != start / kSpan;
            float* to = aside ? later_[size_t(member)].data() + i * part_size_ : part(row, head, span);
            query[size_t(i)] = {queries + row * width + head * m_.head_dim, start, position_[row] + 1, to};
        }
        const int64_t at = pool + begin * m_.head_dim;
        ops_.attend({query.data(), count, begin, end, layer.keys + at, layer.values + at, m_.head_dim, m_.scale, m_.score_cap},
                    scratch_[size_t(member)].data());
        for (int64_t i = 0; !apart_ && i < count; ++i) {
            const int64_t row = piece.row + i / group_, head = shared * group_ + i % group_;
            const int64_t from = first(row, layer.window) / kSpan, last = position_[row] / kSpan;
            if (span > from && span <= last) ops_.join(part(row, head, 0), query[size_t(i)].part, m_.head_dim);
            if (span == last) conclude(part(row, head, 0), row, head, out);
        }
    }
}

void Attention::finish(const mashbox_layer& layer, int64_t row, int64_t head, float* out) {
    const int64_t from = first(row, layer.window) / kSpan;
    float* whole = part(row, head, from);
    for (int64_t span = from + 1; span <= position_[row] / kSpan; ++span) {
        ops_.join(whole, part(row, head, span), m_.head_dim);
    }
    conclude(whole, row, head, out);
}

void Attention::conclude(float* whole, int64_t row, int64_t head, float* out) const {
    float* to = out + (row * m_.heads + head) * m_.head_size;
    if (m_.head_size == m_.head_dim) {
        ops_.finish(whole, m_.head_dim, to);
    } else {
        ops_.finish(whole, m_.head_dim, whole + kPart);
        std::copy(whole + kPart, whole + kPart + m_.head_size, to);
    }
}

}  // namespace mashbox
