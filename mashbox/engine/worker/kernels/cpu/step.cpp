// One function drives a whole step of a dense decoder of Llama's shape.
#include <vector>

#include "mashbox_cpu.h"
#include "ops.h"
#include "rows.h"
#include "team.h"

using namespace mashbox;

namespace {

Matrix view(const mashbox_matrix& m) { return Matrix{m.kind, m.rows, m.cols, m.data}; }

bool floating(const mashbox_model& model) {
    bool found = layout(model.head.kind).floating();
    for (int64_t l = 0; l < model.layers; ++l) {
        const mashbox_layer& a = model.layer[l];
        for (const mashbox_matrix* m : {&a.query, &a.key, &a.value, &a.output, &a.gate, &a.up, &a.down}) {
            found |= layout(m->kind).floating();
        }
    }
    return found;
}

}  // namespace

struct mashbox_engine {
    mashbox_engine(const mashbox_model& model, int threads, const Ops& ops)
        : m_(model), ops_(ops), floating_(floating(model)), team_(threads), scores_(size_t(threads)) {
        for (auto& row : scores_) row.resize(size_t(m_.ctx + 8));
    }

    void step(int64_t rows, const int64_t* token, const int64_t* slot, const int64_t* position,
              int64_t wanted_count, const int64_t* wanted, float* out) {
        rows_ = rows;
        token_ = token;
        slot_ = slot;
        position_ = position;
        make_room(rows);
        team_.run([&](int member) { walk(member, wanted_count, wanted, out); });
    }

   private:
    int64_t query_width() const { return m_.heads * m_.head_dim; }
    int64_t kv_width() const { return m_.kv_heads * m_.head_dim; }
    int64_t width() const { return query_width() + 2 * kv_width(); }

    void make_room(int64_t rows) {
        hidden_.resize(size_t(rows * m_.hidden));
        normed_.resize(size_t(rows * m_.hidden));
        projected_.resize(size_t(rows * width()));
        attended_.resize(size_t(rows * query_width()));
        gate_.resize(size_t(rows * m_.inner));
        up_.resize(size_t(rows * m_.inner));
        from_hidden_ = hidden_rows_.rows(rows, m_.hidden, floating_);
        from_attention_ = attention_rows_.rows(rows, query_width(), floating_);
        from_inner_ = inner_rows_.rows(rows, m_.inner, floating_);
    }

    // Calls work(i) for this member's share of `count`.
    template <class Work>
    void share(int member, int64_t count, Work work) {
        const int64_t last = begin_of(count, member + 1, team_.size());
        for (int64_t i = begin_of(count, member, team_.size()); i < last; ++i) work(i);
    }

    void product(int member, const mashbox_matrix& matrix, const Rows& from, int64_t rows, float* out,
                 int64_t stride, bool add) {
        const Matrix m = view(matrix);
        const int64_t panels = panels_of(m), first = begin_of(panels, member, team_.size());
        ops_.product(m, first, begin_of(panels, member + 1, team_.size()), from, rows, out, stride, add);
    }

    void norm_row(int64_t row, const float* weight, int64_t to) {
        float* normed = normed_.data() + to * m_.hidden;
        ops_.norm(hidden_.data() + row * m_.hidden, weight, m_.hidden, m_.eps, normed);
        quantise(normed, from_hidden_, to);
    }

    void quantise(const float* x, const Rows& to, int64_t row) {
        const int64_t groups = to.cols / kGroup;
        ops_.quantise(x, row * groups, groups, to);
    }

    void walk(int member, int64_t wanted_count, const int64_t* wanted, float* out) {
        const Matrix embedding = view(m_.embedding);
        share(member, rows_, [&](int64_t r) {
            unpack_row(embedding, token_[r], hidden_.data() + r * m_.hidden);
        });
        for (int64_t l = 0; l < m_.layers; ++l) {
            attention(member, m_.layer[l]);
            feed_forward(member, m_.layer[l]);
        }
        team_.barrier();
        if (!wanted_count) return;
        share(member, wanted_count, [&](int64_t i) { norm_row(wanted[i], m_.final_norm, i); });
        team_.barrier();
        product(member, m_.head, from_hidden_, wanted_count, out, m_.vocab, false);
    }

    void attention(int member, const mashbox_layer& layer) {
        team_.barrier();
        share(member, rows_, [&](int64_t r) { norm_row(r, layer.input_norm, r); });
        team_.barrier();
        float* to = projected_.data();
        product(member, layer.query, from_hidden_, rows_, to, width(), false);
        product(member, layer.key, from_hidden_, rows_, to + query_width(), width(), false);
        product(member, layer.value, from_hidden_, rows_, to + query_width() + kv_width(), width(), false);
        team_.barrier();
        const int64_t turned = m_.heads + 2 * m_.kv_heads;
        share(member, rows_ * turned, [&](int64_t i) { place(layer, i / turned, i % turned); });
        team_.barrier();
        share(member, rows_ * m_.heads, [&](int64_t i) { attend(member, layer, i / m_.heads, i % m_.heads); });
        team_.barrier();
        share(member, rows_, [&](int64_t r) {
            quantise(attended_.data() + r * query_width(), from_attention_, r);
        });
        team_.barrier();
        product(member, layer.output, from_attention_, rows_, hidden_.data(), m_.hidden, true);
    }

    uint16_t* cached(uint16_t* pool, int64_t row, int64_t head) const {
        return pool + (slot_[row] * m_.kv_heads + head) * m_.ctx * m_.head_dim;
    }

    // Turns one head of a row's projections, and puts keys and values into the cache.
    void place(const mashbox_layer& layer, int64_t row, int64_t head) {
        float* x = projected_.data() + row * width() + head * m_.head_dim;
        const int64_t at = position_[row], half = m_.head_dim / 2;
        if (head < m_.heads + m_.kv_heads) ops_.rotate(x, m_.cosine + at * half, m_.sine + at * half, half);
        if (head < m_.heads) return;
        const bool key = head < m_.heads + m_.kv_heads;
        const int64_t number = head - m_.heads - (key ? 0 : m_.kv_heads);
        uint16_t* pool = cached(key ? layer.keys : layer.values, row, number);
        ops_.to_half(x, pool + at * m_.head_dim, m_.head_dim);
    }

    void attend(int member, const mashbox_layer& layer, int64_t row, int64_t head) {
        const int64_t shared = head / (m_.heads / m_.kv_heads);
        ops_.attend(projected_.data() + row * width() + head * m_.head_dim, cached(layer.keys, row, shared),
                    cached(layer.values, row, shared), position_[row] + 1, m_.head_dim, m_.scale,
                    scores_[size_t(member)].data(),
                    attended_.data() + row * query_width() + head * m_.head_dim);
    }

    void feed_forward(int member, const mashbox_layer& layer) {
        team_.barrier();
        share(member, rows_, [&](int64_t r) { norm_row(r, layer.output_norm, r); });
        team_.barrier();
        product(member, layer.gate, from_hidden_, rows_, gate_.data(), m_.inner, false);
        product(member, layer.up, from_hidden_, rows_, up_.data(), m_.inner, false);
        team_.barrier();
        // Each group of 32 by itself, so that one row keeps several members busy.
        const int64_t groups = m_.inner / kGroup;
        share(member, rows_ * groups, [&](int64_t i) {
            ops_.gate(gate_.data() + i * kGroup, up_.data() + i * kGroup, kGroup);
            ops_.quantise(gate_.data() + i * kGroup, i, 1, from_inner_);
        });
        team_.barrier();
        product(member, layer.down, from_inner_, rows_, hidden_.data(), m_.hidden, true);
    }

    const mashbox_model m_;
    const Ops& ops_;
    const bool floating_;  // whether a product takes rows as they are
    Team team_;
    std::vector<std::vector<float>> scores_;
    std::vector<float> hidden_, normed_, projected_, attended_, gate_, up_;
    RowStore hidden_rows_, attention_rows_, inner_rows_;
    Rows from_hidden_{}, from_attention_{}, from_inner_{};
    int64_t rows_ = 0;
    const int64_t *token_ = nullptr, *slot_ = nullptr, *position_ = nullptr;
};

extern "C" mashbox_engine* mashbox_open(const mashbox_model* model, int threads, int instructions) {
    const Ops* ops = ops_for(instructions);
    return ops && threads > 0 ? new mashbox_engine(*model, threads, *ops) : nullptr;
}

extern "C" void mashbox_close(mashbox_engine* engine) { delete engine; }

extern "C" void mashbox_step(mashbox_engine* engine, int64_t rows, const int64_t* token, const int64_t* slot,
                             const int64_t* position, int64_t wanted_count, const int64_t* wanted, float* out) {
    engine->step(rows, token, slot, position, wanted_count, wanted, out);
}
