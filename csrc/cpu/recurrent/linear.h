// Linear attention with decay, with and without the delta rule. Included per instruction set.
#pragma once

#include "recurrent/chunk.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Vectors of a row of the state that are computed with at a time: as many as there are registers for.
constexpr int kTile = kLanes == 16 ? 8 : 4;
constexpr int64_t kTileColumns = kTile * kLanes;
constexpr int64_t kPieceTokens = 256, kFewest = 8;  // of a piece, and for the form in chunks
constexpr int64_t kFewTokens = 4;  // more of them work on a copy of the tile, whose rows lie next to each other

// What a token has for one head.
struct Token {
  alignas(64) float key[kMostKeyDim], query[kMostKeyDim], kept[kMostKeyDim], kept_key[kMostKeyDim];
  float beta = 0.0f;

  template <typename T>
  void read(const core_linear_attention_args& a, int64_t token, int64_t head) {
    int64_t key_head = head / (a.heads / a.key_heads);
    const T* q = static_cast<const T*>(a.q) + token * a.q_stride + key_head * a.key_dim;
    const T* k = static_cast<const T*>(a.k) + token * a.k_stride + key_head * a.key_dim;
    const float* decay = a.decay + token * a.decay_stride + head * (a.per_key != 0 ? a.key_dim : 1);
    vf scale = splat(static_cast<float>(a.scale)), all = exp(splat(decay[0]));
    for (int64_t i = 0; i < a.key_dim; i += kLanes) {
      int64_t left = a.key_dim - i;
      vf one = load_some(k + i, left), factor = a.per_key != 0 ? exp(load_some(decay + i, left)) : all;
      store(key + i, one);
      store(query + i, load_some(q + i, left) * scale);
      store(kept + i, factor);
      store(kept_key + i, one * factor);
    }
    if (a.beta != nullptr) beta = a.beta[token * a.beta_stride + head];
  }
};

// `N` vectors of each row of a head's state, `stride` elements from row to row, and one token.
template <int N, bool Delta, typename T>
CORE_INLINE void step(const Token& token, float* state, int64_t stride, int64_t key_dim, const T* v, T* out,
                      int64_t columns) {
  vf value[N];
  CORE_UNROLL
  for (int j = 0; j < N; ++j) value[j] = load_some(v + j * kLanes, columns - j * kLanes);
  if (Delta) {
    vf found[N] = {};
    for (int64_t i = 0; i < key_dim; ++i) {
      vf key = splat(token.kept_key[i]);
      CORE_UNROLL
      for (int j = 0; j < N; ++j) found[j] = multiply_add(key, load(state + i * stride + j * kLanes), found[j]);
    }
    CORE_UNROLL
    for (int j = 0; j < N; ++j) value[j] = (value[j] - found[j]) * token.beta;
  }
  vf sums[N] = {};
  for (int64_t i = 0; i < key_dim; ++i) {
    vf key = splat(token.key[i]), kept = splat(token.kept[i]), query = splat(token.query[i]);
    CORE_UNROLL
    for (int j = 0; j < N; ++j) {
      float* place = state + i * stride + j * kLanes;
      vf now = multiply_add(key, value[j], load(place) * kept);
      store(place, now);
      sums[j] = multiply_add(query, now, sums[j]);
    }
  }
  CORE_UNROLL
  for (int j = 0; j < N; ++j) store_some(out + j * kLanes, sums[j], columns - j * kLanes);
}

// Columns of one head's state, and some tokens of one row.
struct Columns {
  const core_linear_attention_args& a;
  const Piece& piece;
  int64_t head, begin, count;

  template <int N, bool Delta, typename T>
  void run() const {
    int64_t from = piece.from, to = piece.to;
    float* state = a.state + a.state_slots[piece.row] * a.slot_stride + head * a.key_dim * a.value_dim + begin;
    if (piece.fresh) clear(state);
    if (count == N * kLanes && to - from < kFewTokens) return all<N, Delta, T>(state, a.value_dim, from, to);
    alignas(64) float held[kMostKeyDim * N * kLanes];
    for (int64_t i = 0; i < a.key_dim; ++i) widen(state + i * a.value_dim, held + i * N * kLanes, count);
    all<N, Delta, T>(held, N * kLanes, from, to);
    size_t bytes = static_cast<size_t>(count) * sizeof(float);
    for (int64_t i = 0; i < a.key_dim; ++i) std::memcpy(state + i * a.value_dim, held + i * N * kLanes, bytes);
  }

 private:
  void clear(float* state) const {
    size_t bytes = static_cast<size_t>(count) * sizeof(float);
    for (int64_t i = 0; i < a.key_dim; ++i) std::memset(state + i * a.value_dim, 0, bytes);
  }

  template <int N, bool Delta, typename T>
  void all(float* state, int64_t stride, int64_t from, int64_t to) const {
    Token token;
    int64_t at = head * a.value_dim + begin;
    for (int64_t t = from; t < to; ++t) {
      token.read<T>(a, t, head);
      const T* v = static_cast<const T*>(a.v) + t * a.v_stride + at;
      T* out = static_cast<T*>(a.out) + t * a.heads * a.value_dim + at;
      step<N, Delta>(token, state, stride, a.key_dim, v, out, count);
    }
  }
};

// A tile, or what is left of one, by widths that leave no vector empty.
template <bool Delta, typename T>
void run_tile(const core_linear_attention_args& a, const Piece& piece, int64_t head, int64_t begin, int64_t end) {
  while (begin < end) {
    int64_t vectors = (end - begin) / kLanes, width = vectors >= kTile ? kTile : vectors >= 2 ? 2 : 1;
    int64_t count = end - begin < width * kLanes ? end - begin : width * kLanes;
    Columns columns{a, piece, head, begin, count};
    if (width == kTile) {
      columns.run<kTile, Delta, T>();
    } else {
      width == 2 ? columns.run<2, Delta, T>() : columns.run<1, Delta, T>();
    }
    begin += count;
  }
}

// Rows of few tokens step by step, whole heads, whose memory is read from one end to the other, unless there are too few
// of them for all threads.
template <bool Delta, typename T>
void by_token(const core_linear_attention_args& a) {
  int64_t tiles = a.heads * a.rows < a.threads ? ceil_div(a.value_dim, kTileColumns) : 1;
  int64_t size = tiles > 1 ? kTileColumns : a.value_dim;
  int64_t work = 2 * a.key_dim * ceil_div(size, kLanes);
  for_parts(a, a.heads * tiles, work, kPieceTokens, [&](int64_t part, const Piece& piece) {
    int64_t begin = part % tiles * size, end = begin + size < a.value_dim ? begin + size : a.value_dim;
    run_tile<Delta, T>(a, piece, part / tiles, begin, end);
  });
}

// Rows of any length: as many heads of a key head at a time as there is room for, and as leaves parts for all threads.
template <bool Delta, typename T>
void by_chunk(const core_linear_attention_args& a) {
  int64_t tiles = ceil_div(a.value_dim, kMostColumns), group = a.heads / a.key_heads;
  int64_t size = round_up(ceil_div(a.value_dim, tiles), kPanel);
  int64_t most = kHeld / (round_up(a.key_dim, 16) * size), fair = ceil_div(a.heads * tiles, 4 * a.threads);
  if (most > fair) most = fair;
  if (most > group) most = group;
  int64_t shares = ceil_div(group, most), parts = a.key_heads * shares * tiles;
  int64_t work = 2 * most * a.key_dim * ceil_div(size, kLanes);
  for_parts(a, parts, work, kPieceTokens, [&](int64_t part, const Piece& piece) {
    int64_t begin = part % tiles * size, end = begin + size < a.value_dim ? begin + size : a.value_dim;
    int64_t share = part / tiles % shares, first = part / tiles / shares * group;
    int64_t head = first + group * share / shares, last = first + group * (share + 1) / shares;
    if (piece.to - piece.from >= kFewest) {
      return Prompt{a, piece, head, last - head, begin, end - begin}.template run<Delta, T>();
    }
    for (; head < last; ++head) run_tile<Delta, T>(a, piece, head, begin, end);
  });
}

template <typename T>
void linear_attention(const core_linear_attention_args& a) {
  bool chunks = false;
  for (int64_t row = 0; row < a.rows; ++row) chunks |= a.query_starts[row + 1] - a.query_starts[row] >= kFewest;
  if (a.beta != nullptr) return chunks ? by_chunk<true, T>(a) : by_token<true, T>(a);
  chunks ? by_chunk<false, T>(a) : by_token<false, T>(a);
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
