// What the products of a chunk read, as chunk.h defines it: queries, keys and what is kept of them. Included per
// instruction set.
#pragma once

#include "recurrent/rows.h"
#include "recurrent/sums.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kMostKeyDim = CORE_MOST_KEY_DIM;
constexpr int64_t kChunk = 16;  // tokens
// Rows of a tile that is summed up in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kHigh = 8;
#else
constexpr int kHigh = 4;
#endif
constexpr int64_t kOperand = kChunk * kMostKeyDim, kSquare = kChunk * kChunk;

// 0 where next to nothing is kept: what is smaller still would be slow to compute with.
CORE_INLINE vf settled(vf value) {
  vf size = as_float(as_bits(value) & 0x7fffffffu);
  return size < 1e-30f ? vf{} : value;
}

// The tokens of a chunk for the heads that share a key head. Tokens behind the last one are zeros, and keep everything.
struct Keys {
  alignas(64) float query[kOperand], key[kOperand];                  // `size` elements for each token
  alignas(64) float query_key[kSquare] = {}, key_key[kSquare] = {};  // of tokens s <= t, if a head decays as a whole
  int64_t size, count, rows;  // count: tokens that there are; rows: those that are computed

  template <typename T>
  void read(const core_linear_attention_args& a, int64_t token, int64_t end, int64_t key_head) {
    size = round_up(a.key_dim, 16);
    count = end - token < kChunk ? end - token : kChunk;
    rows = round_up(count, kHigh);
    std::memset(query, 0, static_cast<size_t>(rows * size) * sizeof(float));
    std::memset(key, 0, static_cast<size_t>(rows * size) * sizeof(float));
    vf scale = splat(static_cast<float>(a.scale));
    for (int64_t t = 0; t < count; ++t) {
      const T* q = static_cast<const T*>(a.q) + (token + t) * a.q_stride + key_head * a.key_dim;
      const T* k = static_cast<const T*>(a.k) + (token + t) * a.k_stride + key_head * a.key_dim;
      for (int64_t i = 0; i < a.key_dim; i += kLanes) {
        store(query + t * size + i, load_some(q + i, a.key_dim - i) * scale);
        store(key + t * size + i, load_some(k + i, a.key_dim - i));
      }
    }
    if (a.per_key == 0) compare(a.beta != nullptr);
  }

 private:
  void compare(bool delta) {
    compare(query, query_key);
    if (delta) compare(key, key_key);
  }

  // Two tokens with as many as make a vector of products; the last ones may be of tokens s > t.
  void compare(const float* from, float* to) const {
    constexpr int others = kLanes / 2;
    for (int64_t t = 0; t < rows; t += 2) {
      for (int64_t s = 0; s <= t + 1; s += others) {
        vf total[kLanes] = {};
        for (int64_t i = 0; i < size; i += kLanes) {
          vf one = load(from + t * size + i), next = load(from + (t + 1) * size + i);
          CORE_UNROLL
          for (int j = 0; j < others; ++j) {
            vf k = load(key + (s + j) * size + i);
            total[j] = multiply_add(one, k, total[j]);
            total[j + others] = multiply_add(next, k, total[j + others]);
          }
        }
        alignas(64) float found[kLanes];
        store(found, sums(total));
        std::memcpy(to + t * kChunk + s, found, others * sizeof(float));
        std::memcpy(to + (t + 1) * kChunk + s, found + others, others * sizeof(float));
      }
    }
  }
};

// What the products of a head read.
struct Factors {
  alignas(64) float query[kOperand], key[kOperand], rest[kOperand];  // Q, k D, W; `size` elements for each token
  alignas(64) float among[kSquare], scores[kSquare];                 // A, P
  alignas(64) float beta[kChunk], kept[kMostKeyDim];                 // kept: of each row of S, behind the chunk

  void make(const core_linear_attention_args& a, const Keys& keys, int64_t token, int64_t head) {
    std::memset(beta, 0, sizeof beta);
    for (int64_t t = 0; a.beta != nullptr && t < keys.count; ++t) beta[t] = a.beta[(token + t) * a.beta_stride + head];
    a.per_key != 0 ? by_key(a, keys, token, head) : by_head(a, keys, token, head);
  }

 private:
  void by_head(const core_linear_attention_args& a, const Keys& keys, int64_t token, int64_t head) {
    alignas(64) float each[kChunk] = {}, since[kChunk] = {};  // exp(decay) of each token; D[t, s] of each s
    for (int64_t t = 0; t < keys.count; ++t) each[t] = a.decay[(token + t) * a.decay_stride + head];
    for (int64_t t = 0; t < kChunk; t += kLanes) store(each + t, exp(load(each + t)));
    float all = 1.0f;
    for (int64_t t = 0; t < keys.rows; ++t) {
      for (int64_t s = 0; s < kChunk; s += kLanes) {
        vf kept = settled(load(since + s) * each[t]);
        if (a.beta != nullptr) store(among + t * kChunk + s, load(keys.key_key + t * kChunk + s) * kept * -beta[t]);
        store(since + s, kept);
      }
      since[t] = 1.0f;
      for (int64_t s = 0; s < kChunk; s += kLanes) {
        store(scores + t * kChunk + s, load(keys.query_key + t * kChunk + s) * load(since + s));
      }
      all = all * each[t] < 1e-30f ? 0.0f : all * each[t];
      scale(keys.query, query, t, keys.size, all);
      if (a.beta != nullptr) scale(keys.key, key, t, keys.size, all);
    }
    for (int64_t t = 0; t < keys.rows; ++t) scale(keys.key, rest, t, keys.size, since[t]);
    for (int64_t i = 0; i < keys.size; i += kLanes) store(kept + i, splat(all));
  }

  void by_key(const core_linear_attention_args& a, const Keys& keys, int64_t token, int64_t head) {
    int64_t size = keys.size;
    std::memset(among, 0, sizeof among);
    std::memset(scores, 0, sizeof scores);
    std::memcpy(rest, keys.key, static_cast<size_t>(keys.rows * size) * sizeof(float));
    for (int64_t i = 0; i < size; i += kLanes) store(kept + i, splat(1.0f));
    for (int64_t t = 0; t < keys.rows; ++t) {
      alignas(64) float each[kMostKeyDim];
      const float* decay = a.decay + (token + t) * a.decay_stride + head * a.key_dim;
      for (int64_t i = 0; i < size; i += kLanes) {
        vf one = t < keys.count && i < a.key_dim ? exp(load_some(decay + i, a.key_dim - i)) : splat(1.0f);
        vf now = settled(load(kept + i) * one);
        store(each + i, one);
        store(kept + i, now);
        store(query + t * size + i, load(keys.query + t * size + i) * now);
        store(key + t * size + i, load(keys.key + t * size + i) * now);
      }
      advance(keys, each, t);
    }
  }

  // Token t after those before it, of whose keys `each` is kept: `rest` of these, and the products with all of them.
  void advance(const Keys& keys, const float* each, int64_t t) {
    int64_t size = keys.size;
    for (int64_t begin = 0; begin <= t; begin += kLanes) {
      vf one[kLanes] = {}, other[kLanes] = {};
      for (int64_t s = begin; s <= t && s < begin + kLanes; ++s) {
        vf with_query = {}, with_key = {};
        for (int64_t i = 0; i < size; i += kLanes) {
          vf k = load(rest + s * size + i);
          if (s < t) k = settled(k * load(each + i));
          store(rest + s * size + i, k);
          with_query = multiply_add(load(keys.query + t * size + i), k, with_query);
          with_key = multiply_add(load(keys.key + t * size + i), k, with_key);
        }
        one[s - begin] = with_query;
        other[s - begin] = with_key;
      }
      store(scores + t * kChunk + begin, sums(one));
      store(among + t * kChunk + begin, sums(other) * -beta[t]);
    }
    among[t * kChunk + t] = 0.0f;
  }

  static void scale(const float* from, float* to, int64_t t, int64_t size, float factor) {
    for (int64_t i = t * size; i < (t + 1) * size; i += kLanes) store(to + i, load(from + i) * factor);
  }
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
