// Which form a row of latent attention has, and the scratch memory of both.
#pragma once

#include "attention/latent.h"
#include "attention/plan.h"

namespace core {
namespace {

constexpr int64_t kExpandedFrom = 32;     // new tokens of a row: fewer do not pay for the copies of weights
constexpr int64_t kChunkQueries = 1024;   // most queries that share the expanded keys of a head
constexpr int64_t kLeastChunk = 128;      // a row is not cut into shorter chunks for the sake of more threads
constexpr int64_t kProductTokens = 48;    // tokens that share a pass over the weights of a head
constexpr int64_t kVector = 16;           // sizes are rounded up to multiples of this

// Whether the queries of a row of `length` tokens see picked positions; without `picks` (0) none does.
inline bool is_picked(int64_t length, int64_t picks) { return picks > 0 && length > picks; }

// Whether keys and values are made for a row of `length` tokens, of which `queries` are new. In products for each head
// and position, a query costs 2 * latent_dim + rope_dim absorbed and key_dim + rope_dim + value_dim expanded; making
// key and value of a position costs as much as bringing a query to the latents and back.
inline bool is_expanded(int64_t queries, int64_t length, int64_t latent_dim, int64_t key_dim, int64_t value_dim,
                        int64_t picks) {
  if (queries < kExpandedFrom || is_picked(length, picks)) return false;
  int64_t before = length - queries, saved = 2 * latent_dim - key_dim - value_dim;
  return queries * (before + queries / 2) * saved > before * latent_dim * (key_dim + value_dim);
}

// Sizes of vectors as the products have them.
struct LatentSizes {
  int64_t latent, rope, key, value;

  int64_t absorbed() const { return latent + rope; }  // of a query and a key in the absorbed form
  int64_t expanded() const { return key + rope; }
};

inline LatentSizes latent_sizes(const core_latent_attention_args& a) {
  return {round_up(a.latent_dim, kVector), round_up(a.rope_dim, kVector), round_up(a.key_dim, kVector),
          round_up(a.value_dim, kVector)};
}

// Scratch of one thread in the absorbed form: a tile whose queries are panels and whose copy are rows of keys, products
// key by key before they are turned, values, a stage of `LatentCopies`, cached rows that lay apart, positions to see.
struct AbsorbedLayout {
  TileLayout tile;
  int64_t turned, values, stage, gathered, positions, bytes;

  int64_t turned_stride;  // from one key's products to the next one's
};

inline int64_t stage_bytes(const LatentSizes& n) { return round_up(16 * n.absorbed() * 4, kAlign); }

inline AbsorbedLayout absorbed_layout(const LatentSizes& n, int64_t tile_rows, int64_t picks) {
  AbsorbedLayout l;
  int64_t whole = round_up(tile_rows, kPanelKeys);
  l.tile = tile_layout(whole, n.absorbed(), n.latent, kTileKeys);
  l.turned_stride = whole + kPadKeys;
  l.turned = round_up(l.tile.bytes, kAlign);
  l.values = l.turned + kTileKeys * l.turned_stride * 4;
  l.stage = l.values + kTileKeys * n.latent * 4;
  l.gathered = l.stage + stage_bytes(n);
  l.positions = l.gathered + stage_bytes(n);
  l.bytes = l.positions + picks * 4;
  return l;
}

// Scratch of one thread in the expanded form: up-projections of a head in the products' form, latents of a pass as
// panels and as rows, keys and values made of them, and queries, results and sums of all tiles of the unit.
struct ExpandedLayout {
  TileLayout tile;  // scores and weights of one tile; `q`, `o` and `stats` of the first
  int64_t next_q, next_o, next_stats;  // from one tile's to the next one's
  int64_t key_rows, values_up, latents, rows, made, keys, values, stage, bytes;
};

constexpr int64_t kMadeStride = kTileKeys + kPadKeys;  // from one dimension of the keys that are made to the next

inline ExpandedLayout expanded_layout(const LatentSizes& n, int64_t tile_rows) {
  ExpandedLayout l;
  TileLayout tile = tile_layout(tile_rows, n.expanded(), n.value, kTileKeys);
  int64_t tiles = ceil_div(kChunkQueries, tile_rows), at = 0;
  auto place = [&at](int64_t bytes) {
    int64_t begin = at;
    at += round_up(bytes, kAlign);
    return begin;
  };
  l.next_q = tile.s - tile.q;
  l.next_o = tile.stats - tile.o;
  l.next_stats = tile.copy - tile.stats;
  l.tile = tile;
  l.tile.q = place(tiles * l.next_q);
  l.tile.o = place(tiles * l.next_o);
  l.tile.stats = place(tiles * l.next_stats);
  l.tile.s = place(tile.p - tile.s);
  l.tile.p = place(tile.o - tile.p);
  l.key_rows = place(n.key * n.latent * 4);
  l.values_up = place(n.latent * n.value * 4);
  l.latents = place(kTileKeys * n.latent * 4);
  l.rows = place(kTileKeys * n.latent * 4);
  l.made = place((n.key > n.value ? n.key : n.value) * kMadeStride * 4);
  l.keys = place(kTileKeys * n.expanded() * 4);
  l.values = place(kTileKeys * n.value * 4);
  l.stage = place(stage_bytes(n));
  l.bytes = at;
  return l;
}

// Scratch of one thread, whichever form its units have.
inline int64_t latent_thread_bytes(const LatentSizes& n, int64_t heads, int64_t picks) {
  int64_t rows = heads > kMostTileRows ? heads : kMostTileRows;
  int64_t absorbed = absorbed_layout(n, rows, picks).bytes, expanded = expanded_layout(n, kMostTileRows).bytes;
  return round_up(absorbed > expanded ? absorbed : expanded, kAlign);
}

// Bytes of one cached token; a part without elements has no scale.
inline int64_t latent_row_bytes(int64_t latent_dim, int64_t rope_dim, int64_t kv_dtype) {
  if (kv_dtype == CORE_I8) return latent_dim + rope_dim + (rope_dim > 0 ? 2 : 1) * 4;
  return (latent_dim + rope_dim) * (kv_dtype == CORE_F32 ? 4 : kv_dtype == CORE_BF16 || kv_dtype == CORE_F16 ? 2 : 1);
}

// Queries of the units of an expanded row: chunks of equal size, more of them where there are threads without work.
inline int64_t chunk_queries(int64_t queries, int64_t units, int64_t threads) {
  int64_t chunks = ceil_div(queries, kChunkQueries), idle = ceil_div(threads, units > 0 ? units : 1);
  int64_t most = ceil_div(queries, kLeastChunk);
  if (idle > most) idle = most;
  return round_up(ceil_div(queries, chunks > idle ? chunks : idle), kVector);
}

}  // namespace
}  // namespace core
