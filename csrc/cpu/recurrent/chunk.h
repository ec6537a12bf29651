// Linear attention of prompts, a chunk of tokens at a time: products of small matrices instead of sweeps over the state.
// Included per instruction set.
//
// Let D[t, s] be what is kept of token s behind token t, the product of what the tokens s + 1 .. t keep, and S the state
// before the chunk. Of its tokens
//
//   U = (I - A)^-1 R     with A[t, s] = -beta[t] k[t] D[t, s] . k[s] for s < t and R[t] = beta[t] (v[t] - k[t] D[t] S),
//   out = Q S + P U      with P[t, s] = q[t] D[t, s] . k[s] for s <= t and Q[t] = q[t] D[t],
//   S' = D[last] S + W U with W[s] = D[last, s] k[s],
//
// where D[t] is what is kept of S. Without the delta rule U is v. D is made of products of what single tokens keep, none
// of which is above 1: no exponent is ever positive, however fast something decays. The columns of S are independent of
// each other, so that a panel of them stays in the first cache through all four products.
#pragma once

#include "recurrent/rows.h"
#include "recurrent/sums.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kMostKeyDim = CORE_MOST_KEY_DIM;
constexpr int64_t kChunk = 16;  // tokens
// Rows and vectors of a tile that is summed up in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kHigh = 8;
#else
constexpr int kHigh = 4;
#endif
constexpr int kWide = 2, kSolved = 4;
constexpr int64_t kPanel = kWide * kLanes;
constexpr int64_t kMostColumns = 128;                        // of a state, for one unit of work
constexpr int64_t kHeld = kMostKeyDim * kMostColumns;        // numbers of the states of a unit
constexpr int64_t kOperand = kChunk * kMostKeyDim, kSquare = kChunk * kChunk;

// sums[m] += x[m * row + i * step] * y[i], the sum over `count` lines of a panel.
template <int M>
CORE_INLINE void multiply(vf (&sums)[M][kWide], const float* x, int64_t row, int64_t step, const float* y,
                          int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    vf line[kWide];
    CORE_UNROLL
    for (int j = 0; j < kWide; ++j) line[j] = load(y + i * kPanel + j * kLanes);
    CORE_UNROLL
    for (int m = 0; m < M; ++m) {
      vf one = splat(x[m * row + i * step]);
      CORE_UNROLL
      for (int j = 0; j < kWide; ++j) sums[m][j] = multiply_add(one, line[j], sums[m][j]);
    }
  }
}

// 0 where next to nothing is kept: what is smaller still would be slow to compute with.
CORE_INLINE vf settled(vf value) {
  vf size = as_float(as_bits(value) & 0x7fffffffu);
  return size < 1e-30f ? vf{} : value;
}

// The tokens of a chunk for the heads that share a key head. Tokens behind the last one are zeros, and keep everything.
struct Keys {
  alignas(64) float query[kOperand], key[kOperand];             // `size` elements for each token
  alignas(64) float query_key[kSquare] = {}, key_key[kSquare] = {};  // of tokens s <= t, if a head decays as a whole
  int64_t size, tokens, count, rows;  // count: tokens that there are; rows: those that are computed

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

// One panel of a head's state, `left` of whose columns there are, and a chunk.
template <bool Delta, typename T>
struct Panel {
  const Keys& keys;
  const Factors& factors;
  float* state;
  int64_t left;
  alignas(64) float u[kChunk * kPanel];

  void run(const T* v, int64_t v_stride, T* out, int64_t out_stride) {
    read(v, v_stride);
    if (Delta) solve();
    for (int64_t t = 0; t < keys.rows; t += kHigh) {
      vf sums[kHigh][kWide] = {};
      multiply(sums, factors.query + t * keys.size, keys.size, 1, state, keys.size);
      multiply(sums, factors.scores + t * kChunk, kChunk, 1, u, t + kHigh);
      for (int m = 0; m < kHigh && t + m < keys.count; ++m) put(out + (t + m) * out_stride, sums[m]);
    }
    for (int64_t i = 0; i < keys.size; i += kHigh) {
      vf sums[kHigh][kWide];
      CORE_UNROLL
      for (int m = 0; m < kHigh; ++m) {
        CORE_UNROLL
        for (int j = 0; j < kWide; ++j) {
          sums[m][j] = load(state + (i + m) * kPanel + j * kLanes) * factors.kept[i + m];
        }
      }
      multiply(sums, factors.rest + i, 1, keys.size, u, keys.rows);
      keep(sums, state + i * kPanel);
    }
  }

 private:
  // v, or R.
  void read(const T* v, int64_t v_stride) {
    for (int64_t t = 0; t < keys.rows; t += kHigh) {
      vf sums[kHigh][kWide] = {};
      if (Delta) multiply(sums, factors.key + t * keys.size, keys.size, 1, state, keys.size);
      CORE_UNROLL
      for (int m = 0; m < kHigh; ++m) {
        CORE_UNROLL
        for (int j = 0; j < kWide; ++j) {
          const T* from = v + (t + m) * v_stride + j * kLanes;
          vf value = t + m < keys.count && left > j * kLanes ? load_some(from, left - j * kLanes) : vf{};
          sums[m][j] = Delta ? (value - sums[m][j]) * factors.beta[t + m] : value;
        }
      }
      keep(sums, u + t * kPanel);
    }
  }

  void solve() {
    for (int64_t t = 0; t < keys.rows; t += kSolved) {
      const float* among = factors.among + t * kChunk;
      vf sums[kSolved][kWide];
      CORE_UNROLL
      for (int m = 0; m < kSolved; ++m) {
        CORE_UNROLL
        for (int j = 0; j < kWide; ++j) sums[m][j] = load(u + (t + m) * kPanel + j * kLanes);
      }
      multiply(sums, among, kChunk, 1, u, t);
      CORE_UNROLL
      for (int m = 1; m < kSolved; ++m) {
        CORE_UNROLL
        for (int s = 0; s < m; ++s) {
          vf one = splat(among[m * kChunk + t + s]);
          CORE_UNROLL
          for (int j = 0; j < kWide; ++j) sums[m][j] = multiply_add(one, sums[s][j], sums[m][j]);
        }
      }
      keep(sums, u + t * kPanel);
    }
  }

  template <int M>
  static CORE_INLINE void keep(const vf (&sums)[M][kWide], float* to) {
    CORE_UNROLL
    for (int m = 0; m < M; ++m) {
      CORE_UNROLL
      for (int j = 0; j < kWide; ++j) store(to + m * kPanel + j * kLanes, sums[m][j]);
    }
  }

  CORE_INLINE void put(T* out, const vf (&sums)[kWide]) const {
    CORE_UNROLL
    for (int j = 0; j < kWide; ++j) {
      if (left > j * kLanes) store_some(out + j * kLanes, sums[j], left - j * kLanes);
    }
  }
};

// Some heads of one key head, some columns of their states, and some tokens of one row.
struct Prompt {
  const core_linear_attention_args& a;
  const Piece& piece;
  int64_t head, heads, begin, columns;

  template <bool Delta, typename T>
  void run() const {
    alignas(64) float held[kHeld];
    Keys keys;
    Factors factors;
    int64_t panels = ceil_div(columns, kPanel), rows = round_up(a.key_dim, 16), each = panels * rows * kPanel;
    for (int64_t h = 0; h < heads; ++h) take(state(h), held + h * each, rows);
    for (int64_t token = piece.from; token < piece.to; token += kChunk) {
      keys.read<T>(a, token, piece.to, head / (a.heads / a.key_heads));
      for (int64_t h = 0; h < heads; ++h) {
        factors.make(a, keys, token, head + h);
        int64_t at = (head + h) * a.value_dim + begin, stride = a.heads * a.value_dim;
        const T* v = static_cast<const T*>(a.v) + token * a.v_stride + at;
        T* out = static_cast<T*>(a.out) + token * stride + at;
        for (int64_t p = 0; p < panels; ++p) {
          for (int64_t t = p; t < kChunk; t += panels) expect<T>(token + kChunk + t, h);
          Panel<Delta, T> panel{keys, factors, held + h * each + p * rows * kPanel, columns - p * kPanel, {}};
          panel.run(v + p * kPanel, a.v_stride, out + p * kPanel, stride);
        }
      }
    }
    for (int64_t h = 0; h < heads; ++h) give(held + h * each, state(h), rows);
  }

 private:
  // Asks for what a head reads of a token.
  template <typename T>
  void expect(int64_t token, int64_t h) const {
    if (token >= piece.to) return;
    ask(static_cast<const T*>(a.v) + token * a.v_stride + (head + h) * a.value_dim + begin, columns);
    if (a.per_key != 0) ask(a.decay + token * a.decay_stride + (head + h) * a.key_dim, a.key_dim);
    if (h > 0) return;
    int64_t key_head = head / (a.heads / a.key_heads);
    ask(static_cast<const T*>(a.q) + token * a.q_stride + key_head * a.key_dim, a.key_dim);
    ask(static_cast<const T*>(a.k) + token * a.k_stride + key_head * a.key_dim, a.key_dim);
  }

  float* state(int64_t h) const {
    return a.state + a.state_slots[piece.row] * a.slot_stride + (head + h) * a.key_dim * a.value_dim + begin;
  }

  // Panels of a state, with zeros in the rows and columns that it lacks.
  void take(const float* from, float* to, int64_t rows) const {
    std::memset(to, 0, static_cast<size_t>(ceil_div(columns, kPanel) * rows * kPanel) * sizeof(float));
    if (piece.fresh) return;
    for_pieces(rows, [&](int64_t at, int64_t panel_at, size_t bytes) { std::memcpy(to + panel_at, from + at, bytes); });
  }

  void give(const float* from, float* to, int64_t rows) const {
    for_pieces(rows, [&](int64_t at, int64_t panel_at, size_t bytes) { std::memcpy(to + at, from + panel_at, bytes); });
  }

  template <typename Body>
  void for_pieces(int64_t rows, const Body& body) const {
    for (int64_t i = 0; i < a.key_dim; ++i) {
      for (int64_t c = 0; c < columns; c += kPanel) {
        int64_t count = columns - c < kPanel ? columns - c : kPanel;
        body(i * a.value_dim + c, c * rows + i * kPanel, static_cast<size_t>(count) * sizeof(float));
      }
    }
  }
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
