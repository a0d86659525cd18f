// The plain C interface of the kernels. Python's side of it is kernels/cpu.py.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MASHBOX_API __attribute__((visibility("default")))

typedef struct {
    int64_t kind;  // ggml's number of its type: 0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 6 Q5_0, 7 Q5_1, 8 Q8_0, 12 Q4_K,
                   // 13 Q5_K, 14 Q6_K, 30 BF16
    int64_t rows;
    int64_t cols;
    const uint8_t* data;
} mashbox_matrix;

// Bytes of a matrix of ggml's type `kind` once packed; 0: it can't be.
MASHBOX_API int64_t mashbox_packed_bytes(int64_t kind, int64_t rows, int64_t cols);
// Packs rows as they lie in a GGUF file.
MASHBOX_API void mashbox_pack(int64_t kind, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* out);
// One row in float32 [cols].
MASHBOX_API void mashbox_unpack(const mashbox_matrix* matrix, int64_t row, float* out);

// What a layer does, in this order; a null pointer leaves its part out.
//
//   x = norm(hidden, input_norm); q, k, v = products of x, with their biases
//   q, k = norm(q, query_norm), norm(k, key_norm); q, k turned by the tables; k, v appended to the cache
//   y = output's product of the attention over the last `window` positions, with its bias
//   hidden += residual * norm(y, attention_norm)
//   x = norm(hidden, inner_norm); g = act(gate's product of x) * up's product of x, with their biases
//   hidden += residual * norm(down's product of g with its bias, outer_norm)
typedef struct {
    mashbox_matrix query, key, value, output, gate, up, down;
    const float *input_norm, *attention_norm, *inner_norm, *outer_norm;  // [hidden]
    const float *query_norm, *key_norm;  // [head_dim], or [heads * head_dim] and [kv_heads * head_dim]
    const float *query_bias, *key_bias, *value_bias, *output_bias, *gate_bias, *up_bias, *down_bias;
    const float *cosine, *sine;  // [ctx, turned / 2]
    int64_t window;              // 0: all positions
    uint16_t* keys;              // half precision [slots, kv_heads, ctx / 8, head_dim, 8]
    uint16_t* values;            // half precision [slots, kv_heads, ctx, head_dim]
} mashbox_layer;

// A head has head_dim places (a multiple of 8), of which head_size hold a number: in values, and in what the output
// takes, the first ones. The others are zero in the products of query, key and value, their biases and norms, and
// head_eps is eps * head_size / head_dim.
typedef struct {
    int64_t layers, hidden, inner, heads, kv_heads, head_dim, head_size, vocab, slots, ctx;
    int64_t turned;      // numbers of a head that are turned, its first ones, in two halves
    int64_t wide_norms;  // query_norm and key_norm are over all heads together
    int64_t gelu;        // act is GELU by tanh, else SiLU
    int64_t narrow;      // activations are rounded to 8 bits for products, else to 16
    float eps, head_eps, scale;  // of norms, of queries' and keys' norms; scale: of the attention's scores
    float embedding, residual, logit;  // what embeddings, blocks and logits are multiplied with
    float score_cap, logit_cap;  // scores and logits are cap * tanh(x / cap); 0: as they are
    const mashbox_layer* layer;
    const float* final_norm;  // [hidden]
    mashbox_matrix embeddings, head;
} mashbox_model;

// Whether there are kernels here for an instruction set that this processor has: 0 plain C++, 1 AVX2, 2 AVX2 with
// AVX-VNNI, 3 AVX-512 with VNNI. Of two, the later one is the faster.
MASHBOX_API int mashbox_has(int instructions);

// Between one slot's keys [heads, ctx / 8, dim, 8] and rows [heads, count, dim], its positions from `start` on.
MASHBOX_API void mashbox_keys_in(uint16_t* keys, int64_t heads, int64_t ctx, int64_t dim, int64_t start,
                                 int64_t count, const uint16_t* rows);
MASHBOX_API void mashbox_keys_out(const uint16_t* keys, int64_t heads, int64_t ctx, int64_t dim, int64_t start,
                                  int64_t count, uint16_t* rows);

typedef struct mashbox_engine mashbox_engine;

// The engine copies `model`, but not what it points to. Null: an instruction set that this processor lacks.
MASHBOX_API mashbox_engine* mashbox_open(const mashbox_model* model, int threads, int instructions);
MASHBOX_API void mashbox_close(mashbox_engine* engine);

// Reads token[i] at position[i] of slot[i] for each row: appends its key and value, and attends to the
// slot's positions up to its own. Rows of one slot come in the order of their positions, without a gap
// behind what the slot holds. The caller has checked every bound. Writes the logits of the rows that
// `wanted` lists to out [wanted_count, vocab], and, where `trace` is not null, the hidden state before each
// layer and behind the last one to trace [layers + 1, rows, hidden]; activations are rounded to 16 bits
// then. On `threads` of the engine's threads; 0: on all. One call at a time.
MASHBOX_API void mashbox_step(mashbox_engine* engine, int64_t rows, const int64_t* token, const int64_t* slot,
                  const int64_t* position, int64_t wanted_count, const int64_t* wanted, float* out,
                  float* trace, int threads);

// out [count, matrix rows] = x [count, matrix cols] times the packed matrix, x rounded to 16 bits, or where `narrow`
// is not 0 to 8. 0, or -1 as for mashbox_open.
MASHBOX_API int mashbox_product(const mashbox_matrix* matrix, const float* x, int64_t count, int narrow, int threads,
                    int instructions, float* out);

// A token of a row of n logits: the likeliest for temperature 0, else one drawn by `draw` (from 0 to below 1) after
// temperature, top_k (0: none), top_p and min_p, in this order. -1: a logit is NaN, or the largest is infinite.
MASHBOX_API int64_t mashbox_draw(const float* row, int64_t n, float temperature, int64_t top_k, double top_p,
                                 double min_p, double draw, int instructions);

#ifdef __cplusplus
}
#endif
