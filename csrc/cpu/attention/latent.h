// Multi-head latent attention: a token keeps one latent and one rotated key, which all heads share. Strides count
// elements; `rows`, `query_starts`, `seq_lens` and `table` are those of attention.h.
//
// The cache of one layer is token-major: `(blocks, block_size, latent_dim + rope_dim)` elements of `kv_dtype`, of int8
// with a float32 scale behind each of the two parts. With L = latent_dim the key of head h at a position is `key[h] @
// latent` with the rotated key behind it, its value `latent @ value[h]`. Two forms give the same numbers:
//
//   absorbed   queries `q @ key[h]` meet the latents themselves, and gather latents, of which `value[h]` makes values:
//              core_cpu_head_product, core_cpu_latent_attention, core_cpu_head_product
//   expanded   keys and values of each head are made of the latents of the row; all of it in core_cpu_latent_attention
//
// A row is expanded where that takes fewer products (`is_expanded`, latent_plan.h). Every entry knows by the row's
// lengths which form it has: it reads and writes nothing for the tokens that are not its.
//
// With `picks` a query sees at most so many positions of its row, those in `picked (tokens, picks)` (picks.h chooses
// them): -1 stands for none, and rows that are no longer see everything, whatever is picked. 0: all rows do.
//
// Up-projections are in `dtype`, each size rounded up to a multiple of 16 and filled with zeros: `key (heads, key_dim,
// latent_dim)`, `value (heads, latent_dim, value_dim)`. So is the last dimension of `absorbed` and `found`, `(tokens,
// heads, latent_dim)`. All other tensors have the sizes that are given, which may be any.
#pragma once

#include "common/types.h"

extern "C" {

// Stores `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` of `dtype` at the slots of a cache; rounding
// as in core_store_kv_args. With a rope_dim of 0 there is no second part, and no scale of one: index keys (picks.h).
// With a `ratio` only the tokens at positions p with `(p + 1) % ratio == 0` are stored, at `slot / ratio` (entries.h).
struct core_latent_store_args {
  const void *latent, *rope_key;
  void* cache;
  const int64_t* slots;
  const int32_t *query_starts, *seq_lens;
  int64_t rows, tokens, latent_dim, rope_dim, latent_stride, rope_stride, ratio;
  int64_t dtype, kv_dtype, threads;
};

void core_cpu_latent_store(const core_latent_store_args* args);

// out[t][h] = x[t][h] @ w[h] for the tokens of rows that are not expanded; w `(heads, inputs, outputs)`, padded as
// above. Products are summed up in float32. A token's results lie next to each other, head by head, `outputs` each.
struct core_head_product_args {
  const void *x, *w;
  void* out;
  const int32_t *query_starts, *seq_lens;
  void* scratch;  // core_cpu_head_product_scratch(args) bytes, aligned to 64
  int64_t rows, heads, inputs, outputs, x_stride, x_head_stride;
  int64_t latent_dim, key_dim, value_dim, picks;  // tell which rows are expanded
  int64_t dtype, threads;
};

void core_cpu_head_product(const core_head_product_args* args);
int64_t core_cpu_head_product_scratch(const core_head_product_args* args);

// Attends causally. Rows that are not expanded: `absorbed` and `q_rope` -> `found`; expanded ones: `q (tokens, heads,
// key_dim)` and `q_rope (tokens, heads, rope_dim)` -> `out (tokens, heads, value_dim)`.
struct core_latent_attention_args {
  const void *q, *q_rope, *absorbed, *key, *value, *cache;
  void *found, *out;
  const int32_t *picked, *query_starts, *seq_lens, *table;
  void* scratch;  // core_cpu_latent_attention_scratch(args) bytes, aligned to 64
  int64_t rows, heads, latent_dim, rope_dim, key_dim, value_dim, block_size, picks;
  int64_t q_stride, q_head_stride, rope_stride, rope_head_stride, table_stride;
  int64_t dtype, kv_dtype, threads;
  double scale;
};

void core_cpu_latent_attention(const core_latent_attention_args* args);

// Bytes of scratch for these sizes (pointers, rows and strides are not read): enough for any batch.
int64_t core_cpu_latent_attention_scratch(const core_latent_attention_args* args);

}  // extern "C"
