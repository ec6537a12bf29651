// How a batch is divided into units of work; the same arithmetic sizes the scratch memory.
#pragma once

#include "attention/attention.h"

namespace core {
namespace {

constexpr int64_t kMostTileRows = 96;  // query vectors (queries x heads of one kv head) that share a pass over the keys
constexpr int64_t kFewTileRows = 8;    // up to this many read the cache itself, more a copy in the products' own form
constexpr int64_t kTileKeys = 128;     // keys per pass, and per copy
constexpr int64_t kLongPass = 256;     // keys per pass of AMX where it reads the cache itself,
constexpr int64_t kLongTileRows = 32;  // by tiles of this many rows
constexpr int64_t kWideKeys = 512;     // keys per pass of tiles of few rows
constexpr int64_t kPadKeys = 16;       // between the scores of two rows, so that they lie in different cache sets
constexpr int64_t kPanelKeys = 32;     // keys that lie together in a copy
constexpr int64_t kAskRows = 16;       // so few query vectors of a kv head wait for memory: they ask for what they read
constexpr int64_t kAskedBytes = 16 << 10;  // so far ahead
constexpr int64_t kSplitKeys = 256;    // a decode row is not split into shorter ranges than this
constexpr int64_t kCut = 32;           // its ranges begin at multiples of this
constexpr int64_t kMaxSplits = 64;
constexpr int64_t kUnitsPerThread = 4;
constexpr int64_t kAlign = 64;
// Without a cache: rows of up to so many keys are copied whole, and attended by tiles of so many query vectors in one
// pass; of longer rows each tile copies what it reads, and tiles have a multiple of so many queries. Less than so many
// products are not worth a team.
constexpr int64_t kWholeKeys = 384, kWholeRows = 32, kEvenQueries = 16, kTeamWork = 1 << 16;

struct Plan {
  int64_t group;         // query heads per kv head
  int64_t tile_queries;  // queries per tile
  int64_t tile_rows;     // most query vectors per tile
  int64_t heads;         // most kv heads that a decode row's tile attends to
  int64_t units;         // wanted of a decode row
  int64_t splits;        // most ranges that the keys of a decode row are cut into
  int64_t pass;          // keys per pass of tiles of many rows
};

// `most_rows`: bound of a tile's query vectors, unless one query has more heads than that.
inline Plan make_plan(const core_attention_args& a, int64_t rows, int64_t most_rows, int64_t pass) {
  Plan p;
  p.pass = pass;
  p.group = a.heads / a.kv_heads;
  p.tile_queries = p.group >= most_rows ? 1 : most_rows / p.group;
  p.tile_rows = p.tile_queries * p.group;
  p.heads = 1;
  p.units = a.threads <= 1 || rows < 1 ? 1 : ceil_div(a.threads * kUnitsPerThread, rows);
  p.splits = p.units < kMaxSplits ? p.units : kMaxSplits;
  return p;
}

// Partial results that decode rows leave at once, `heads` a row: rows times splits is less than one unit per row more
// than wanted, and only batches of fewer rows than that are split at all.
inline int64_t most_partials(int64_t threads, int64_t heads) { return 2 * threads * kUnitsPerThread * heads; }

// Scratch of one thread: queries, scores, probabilities, accumulators, seven numbers and a vector of sums a row, a
// copy of keys or values, scales of keys and of values.
struct TileLayout {
  int64_t q, s, p, o, stats, row_stats, copy, scales, bytes;
};

// Scales of keys, or of values, of a pass: one a key and kv head.
inline int64_t scale_places(int64_t tile_rows, int64_t pass) {
  int64_t places = tile_rows * pass;
  return places > kWideKeys ? places : kWideKeys;
}

// `dims`: those of a query and a key, `value_dims`: of a value and a result. `pass`: keys per pass of a tile of
// `tile_rows`. Tiles of a quarter of the rows may have `kWideKeys`.
inline TileLayout tile_layout(int64_t tile_rows, int64_t dims, int64_t value_dims, int64_t pass) {
  TileLayout t;
  t.q = 0;
  t.s = t.q + round_up(tile_rows * dims * 4, kAlign);
  t.p = t.s + round_up(tile_rows * (pass + kPadKeys) * 4, kAlign);
  t.o = t.p + round_up(tile_rows * (pass + kPadKeys) * 4, kAlign);
  t.stats = t.o + round_up(tile_rows * value_dims * 4, kAlign);
  t.row_stats = round_up(tile_rows, kAlign / 4);
  t.copy = t.stats + t.row_stats * (7 + kAlign / 4) * 4;
  t.scales = t.copy + kTileKeys * (dims > value_dims ? dims : value_dims) * 4;
  t.bytes = t.scales + 2 * scale_places(tile_rows, pass) * 4;
  return t;
}

// Scratch of one thread without a cache: a tile, and the keys and values of a row.
inline int64_t encoder_bytes(int64_t tile_rows, int64_t head_dim, int64_t pass) {
  return round_up(tile_layout(tile_rows, head_dim, head_dim, pass).bytes, kAlign) + 2 * kWholeKeys * head_dim * 4;
}

// A split's result: accumulators, maximum and sum of each query head of the group.
inline int64_t partial_floats(int64_t group, int64_t value_dims) { return group * (value_dims + 2); }

}  // namespace
}  // namespace core
