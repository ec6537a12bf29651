// How the picking of positions is divided into units of work, and its scratch memory.
#pragma once

#include "attention/latent_plan.h"
#include "attention/picks.h"

namespace core {
namespace {

constexpr int64_t kPickQueries = 8;     // queries of a row that share a copy of its index keys
constexpr int64_t kIndexStep = 32;      // what AMX multiplies at once: index keys are filled up to multiples of it
constexpr int64_t kLeastSpare = 1024;   // candidates that are taken, at least, before they are cut to the best

// Candidates that a query has room for beside its picks: cutting costs as much for few, so that it is done seldom.
inline int64_t spare_candidates(int64_t picks) { return picks > kLeastSpare ? picks : kLeastSpare; }

// Room of a query's candidates: what is left by a cut, what comes before the next one, a pass, and a vector that is
// written whole.
inline int64_t most_candidates(int64_t picks) { return picks + spare_candidates(picks) + kTileKeys + kVector; }

// What a range of a decode row leaves: how many candidates, their scores, their positions, each in whole vectors.
inline int64_t partial_positions(int64_t picks) { return kAlign + round_up(picks, kVector) * 4; }
inline int64_t pick_partial_bytes(int64_t picks) { return kAlign + round_up(picks, kVector) * 2 * 4; }

// Scratch of one thread: queries, index keys of a pass as panels with a stage and a scale for each, cached ones that
// lay apart, products of one query's heads, its scores, and candidates of every query.
struct PickLayout {
  int64_t q, keys, stage, gathered, scales, products, scores, candidates, bytes;

  int64_t dims, stride;             // of a query vector; from a head's products to the next one's
  int64_t next_candidates;          // from one query's to the next one's
};

inline PickLayout pick_layout(const core_pick_args& a) {
  PickLayout l;
  int64_t at = 0;
  auto place = [&at](int64_t bytes) {
    int64_t begin = at;
    at += round_up(bytes, kAlign);
    return begin;
  };
  l.dims = round_up(a.key_dim, kIndexStep);
  l.stride = kTileKeys + kPadKeys;
  l.next_candidates = round_up(most_candidates(a.picks) * 2 * 4, kAlign);
  l.q = place(kPickQueries * a.heads * l.dims * 4);
  l.keys = place(kTileKeys * l.dims * 4);
  l.stage = place(kVector * l.dims * 4);
  l.gathered = place(kVector * (l.dims + 1) * 4);
  l.scales = place(kTileKeys * 4);
  l.products = place(round_up(a.heads, kVector) * l.stride * 4);
  l.scores = place(kTileKeys * 4);
  l.candidates = place(kPickQueries * l.next_candidates);
  l.bytes = at;
  return l;
}

}  // namespace
}  // namespace core
