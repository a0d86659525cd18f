// One function drives a whole step of a dense decoder.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention.h"
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
        : m_(model), ops_(ops), floating_(floating(model)), team_(threads), attention_(model, ops, threads) {}

    void step(int64_t rows, const int64_t* token, const int64_t* slot, const int64_t* position,
              int64_t wanted_count, const int64_t* wanted, float* out, float* trace, int threads) {
        rows_ = rows;
        trace_ = trace;
        token_ = token;
        slot_ = slot;
        position_ = position;
        make_room(rows);
        attention_.prepare(rows, slot, position);
        team_.run([&](int member) { walk(member, wanted_count, wanted, out); }, threads);
    }

   private:
    int64_t query_width() const { return m_.heads * m_.head_dim; }
    int64_t answer_width() const { return m_.heads * m_.head_size; }
    int64_t kv_width() const { return m_.kv_heads * m_.head_dim; }
    int64_t width() const { return query_width() + 2 * kv_width(); }

    void make_room(int64_t rows) {
        hidden_.resize(size_t(rows * m_.hidden));
        normed_.resize(size_t(rows * m_.hidden));
        projected_.resize(size_t(rows * width()));
        attended_.resize(size_t(rows * answer_width()));
        branch_.resize(size_t(rows * m_.hidden));
        gate_.resize(size_t(rows * m_.inner));
        up_.resize(size_t(rows * m_.inner));
        // A trace tells whether the model is the one described: no coarser numbers than need be.
        const bool narrow = m_.narrow && !trace_;
        from_hidden_ = hidden_rows_.rows(rows, m_.hidden, floating_, narrow);
        from_attention_ = attention_rows_.rows(rows, answer_width(), floating_, narrow);
        from_inner_ = inner_rows_.rows(rows, m_.inner, floating_, narrow);
    }

    // Calls work(i) for this member's share of `count`.
    template <class Work>
    void share(int member, int64_t count, Work work) {
        const int64_t last = begin_of(count, member + 1, team_.active());
        for (int64_t i = begin_of(count, member, team_.active()); i < last; ++i) work(i);
    }

    void product(int member, const mashbox_matrix& matrix, const Rows& from, int64_t rows, float* out,
                 int64_t stride, bool add) {
        const Matrix m = view(matrix);
        const int64_t panels = panels_of(m), first = begin_of(panels, member, team_.active());
        ops_.product(m, first, begin_of(panels, member + 1, team_.active()), from, rows, out, stride, add);
    }

    // The hidden state of a row, normed and rounded, as row `to` of the next product.
    void norm_row(int64_t row, const float* weight, int64_t to) {
        const float* from = hidden_.data() + row * m_.hidden;
        if (weight) {
            float* normed = normed_.data() + to * m_.hidden;
            ops_.norm(from, weight, m_.hidden, m_.eps, normed);
            from = normed;
        }
        quantise(from, from_hidden_, to);
    }

    // Whether a block's result needs more than to be added to the hidden state.
    bool apart(const float* bias, const float* norm) const { return bias || norm || m_.residual != 1.0f; }

    // Adds what a block left in branch_, where it was kept apart.
    void settle(int64_t row, const float* bias, const float* norm) {
        if (!apart(bias, norm)) return;
        float* branch = branch_.data() + row * m_.hidden;
        if (bias) ops_.add(branch, bias, 1.0f, m_.hidden);
        if (norm) ops_.norm(branch, norm, m_.hidden, m_.eps, branch);
        ops_.add(hidden_.data() + row * m_.hidden, branch, m_.residual, m_.hidden);
    }

    // Ends the layer before `layer` for a row; its first layer has none before it.
    void end_layer(int64_t row, int64_t layer) {
        if (layer > 0) settle(row, m_.layer[layer - 1].down_bias, m_.layer[layer - 1].outer_norm);
        if (!trace_) return;
        const float* from = hidden_.data() + row * m_.hidden;
        std::copy(from, from + m_.hidden, trace_ + (layer * rows_ + row) * m_.hidden);
    }

    // A block's last product: into the hidden state, or into branch_.
    void leave(int member, const mashbox_matrix& matrix, const Rows& from, const float* bias, const float* norm) {
        const bool branches = apart(bias, norm);
        product(member, matrix, from, rows_, branches ? branch_.data() : hidden_.data(), m_.hidden, !branches);
    }

    void quantise(const float* x, const Rows& to, int64_t row) {
        const int64_t groups = to.cols / kGroup;
        ops_.quantise(x, row * groups, groups, to);
    }

    void walk(int member, int64_t wanted_count, const int64_t* wanted, float* out) {
        const Matrix embeddings = view(m_.embeddings);
        share(member, rows_, [&](int64_t r) {
            float* hidden = hidden_.data() + r * m_.hidden;
            unpack_row(embeddings, token_[r], hidden);
            if (m_.embedding != 1.0f) {
                for (int64_t i = 0; i < m_.hidden; ++i) hidden[i] *= m_.embedding;
            }
        });
        for (int64_t l = 0; l < m_.layers; ++l) {
            attention(member, l);
            feed_forward(member, m_.layer[l]);
        }
        team_.barrier();
        if (trace_) {
            share(member, rows_, [&](int64_t r) { end_layer(r, m_.layers); });
            team_.barrier();
        }
        if (!wanted_count) return;
        share(member, wanted_count, [&](int64_t i) {
            if (!trace_) end_layer(wanted[i], m_.layers);
            norm_row(wanted[i], m_.final_norm, i);
        });
        team_.barrier();
        product(member, m_.head, from_hidden_, wanted_count, out, m_.vocab, false);
        if (m_.logit != 1.0f || m_.logit_cap > 0) finish_logits(member, wanted_count, out);
    }

    // Scales and caps the logits that this member has computed.
    void finish_logits(int member, int64_t wanted_count, float* out) const {
        const int64_t panels = panels_of(view(m_.head));
        const int64_t first = begin_of(panels, member, team_.active()) * kLanes;
        const int64_t last = std::min(begin_of(panels, member + 1, team_.active()) * kLanes, m_.vocab);
        for (int64_t r = 0; r < wanted_count; ++r) {
            for (int64_t i = first; i < last; ++i) {
                float& logit = out[r * m_.vocab + i];
                logit *= m_.logit;
                if (m_.logit_cap > 0) logit = m_.logit_cap * std::tanh(logit / m_.logit_cap);
            }
        }
    }

    void attention(int member, int64_t number) {
        const mashbox_layer& layer = m_.layer[number];
        team_.barrier();
        share(member, rows_, [&](int64_t r) {
            end_layer(r, number);
            norm_row(r, layer.input_norm, r);
        });
        team_.barrier();
        float* to = projected_.data();
        product(member, layer.query, from_hidden_, rows_, to, width(), false);
        product(member, layer.key, from_hidden_, rows_, to + query_width(), width(), false);
        product(member, layer.value, from_hidden_, rows_, to + query_width() + kv_width(), width(), false);
        team_.barrier();
        if (m_.wide_norms) {
            share(member, rows_, [&](int64_t r) { wide_norm(layer, r); });
            team_.barrier();
        }
        const int64_t turned = m_.heads + 2 * m_.kv_heads;
        share(member, rows_ * turned, [&](int64_t i) { place(layer, i / turned, i % turned); });
        team_.barrier();
        attend(member, layer);
        team_.barrier();
        share(member, rows_, [&](int64_t r) {
            quantise(attended_.data() + r * answer_width(), from_attention_, r);
        });
        team_.barrier();
        leave(member, layer.output, from_attention_, layer.output_bias, layer.attention_norm);
    }

    // Biases and norms of all heads of a row together.
    void wide_norm(const mashbox_layer& layer, int64_t row) {
        float *query = projected_.data() + row * width(), *key = query + query_width();
        if (layer.query_bias) ops_.add(query, layer.query_bias, 1.0f, query_width());
        if (layer.key_bias) ops_.add(key, layer.key_bias, 1.0f, kv_width());
        if (layer.query_norm) ops_.norm(query, layer.query_norm, query_width(), m_.head_eps, query);
        if (layer.key_norm) ops_.norm(key, layer.key_norm, kv_width(), m_.head_eps, key);
    }

    uint16_t* cached(uint16_t* pool, int64_t row, int64_t head) const {
        return pool + (slot_[row] * m_.kv_heads + head) * m_.ctx * m_.head_dim;
    }

    // Finishes one head of a row's projections, and puts keys and values into the cache.
    void place(const mashbox_layer& layer, int64_t row, int64_t head) {
        float* x = projected_.data() + row * width() + head * m_.head_dim;
        if (head < m_.heads) {
            turn(layer, row, x, layer.query_bias ? layer.query_bias + head * m_.head_dim : nullptr, layer.query_norm);
            return;
        }
        const bool key = head < m_.heads + m_.kv_heads;
        const int64_t number = head - m_.heads - (key ? 0 : m_.kv_heads);
        const float* bias = key ? layer.key_bias : layer.value_bias;
        if (bias) bias += number * m_.head_dim;
        if (key) {
            turn(layer, row, x, bias, layer.key_norm);
        } else if (bias) {
            ops_.add(x, bias, 1.0f, m_.head_dim);
        }
        uint16_t* pool = cached(key ? layer.keys : layer.values, row, number);
        const int64_t at = key ? tile_at(position_[row], m_.head_dim) : position_[row] * m_.head_dim;
        ops_.to_half(x, pool + at, m_.head_dim, key ? kTile : 1);
    }

    void turn(const mashbox_layer& layer, int64_t row, float* x, const float* bias, const float* norm) {
        if (!m_.wide_norms) {
            if (bias) ops_.add(x, bias, 1.0f, m_.head_dim);
            if (norm) ops_.norm(x, norm, m_.head_dim, m_.head_eps, x);
        }
        const int64_t half = m_.turned / 2, at = position_[row] * half;
        if (layer.cosine) ops_.rotate(x, layer.cosine + at, layer.sine + at, half);
    }

    void attend(int member, const mashbox_layer& layer) {
        share(member, attention_.pieces(layer), [&](int64_t i) {
            attention_.compute(member, layer, i, projected_.data(), width(), attended_.data());
        });
        if (!attention_.apart()) return;
        team_.barrier();
        share(member, rows_ * m_.heads, [&](int64_t i) {
            attention_.finish(layer, i / m_.heads, i % m_.heads, attended_.data());
        });
    }

    void feed_forward(int member, const mashbox_layer& layer) {
        team_.barrier();
        share(member, rows_, [&](int64_t r) {
            settle(r, layer.output_bias, layer.attention_norm);
            norm_row(r, layer.inner_norm, r);
        });
        team_.barrier();
        product(member, layer.gate, from_hidden_, rows_, gate_.data(), m_.inner, false);
        product(member, layer.up, from_hidden_, rows_, up_.data(), m_.inner, false);
        team_.barrier();
        // Each group of 32 by itself, so that one row keeps several members busy.
        const int64_t groups = m_.inner / kGroup;
        const auto gated = m_.gelu ? ops_.gate_gelu : ops_.gate;
        share(member, rows_ * groups, [&](int64_t i) {
            float *gate = gate_.data() + i * kGroup, *up = up_.data() + i * kGroup;
            if (layer.gate_bias) ops_.add(gate, layer.gate_bias + i % groups * kGroup, 1.0f, kGroup);
            if (layer.up_bias) ops_.add(up, layer.up_bias + i % groups * kGroup, 1.0f, kGroup);
            gated(gate, up, kGroup);
            ops_.quantise(gate, i, 1, from_inner_);
        });
        team_.barrier();
        leave(member, layer.down, from_inner_, layer.down_bias, layer.outer_norm);
    }

    const mashbox_model m_;
    const Ops& ops_;
    const bool floating_;  // whether a product takes rows as they are
    Team team_;
    Attention attention_;
    std::vector<float> hidden_, normed_, branch_, projected_, attended_, gate_, up_;
    RowStore hidden_rows_, attention_rows_, inner_rows_;
    Rows from_hidden_{}, from_attention_{}, from_inner_{};
    int64_t rows_ = 0;
    float* trace_ = nullptr;
    const int64_t *token_ = nullptr, *slot_ = nullptr, *position_ = nullptr;
};

extern "C" mashbox_engine* mashbox_open(const mashbox_model* model, int threads, int instructions) {
    const Ops* ops = ops_for(instructions);
    return ops && threads > 0 ? new mashbox_engine(*model, threads, *ops) : nullptr;
}

extern "C" void mashbox_close(mashbox_engine* engine) { delete engine; }

extern "C" void mashbox_step(mashbox_engine* engine, int64_t rows, const int64_t* token, const int64_t* slot,
                             const int64_t* position, int64_t wanted_count, const int64_t* wanted, float* out,
                             float* trace, int threads) {
    engine->step(rows, token, slot, position, wanted_count, wanted, out, trace, threads);
}
