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

#include "recurrent/factors.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int kWide = 2, kSolved = 4;  // vectors of a tile; tokens that are solved for at a time
constexpr int64_t kPanel = kWide * kLanes;
constexpr int64_t kMostColumns = 128;                  // of a state, for one unit of work
constexpr int64_t kHeld = kMostKeyDim * kMostColumns;  // numbers of the states of a unit

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
