// Units of work of latent attention in the absorbed form: tiles of queries, ranges of the keys of a decode row, and
// single queries that see picked positions.
#pragma once

#include "attention/absorbed.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Lists those of a range of a query's picks that stand for a position. Returns how many.
template <typename P>
int64_t list_positions(const LatentWork<P>& w, const Tile<P>& t, int32_t* out) {
  const int32_t* from = w.a.picked + t.token(0) * w.a.picks;
  int64_t count = 0;
  for (int64_t i = t.range.first_key; i < t.range.last_key; ++i) {
    out[count] = from[i];
    count += from[i] >= 0;
  }
  return count;
}

// Attends to a range of positions, or of picks where the queries of the row see such, and calls finish(tile).
template <typename P, typename Finish>
void attend_range(const LatentWork<P>& w, const Range& range, char* scratch, const Finish& finish) {
  bool picked = w.picks(range.row), apart = picked || w.a.block_size % 16 != 0;
  const Plan& plan = picked ? w.single : w.plan;
  AbsorbedLayout layout = absorbed_layout(w.n, plan.tile_rows, w.a.picks);
  Absorbed<P> e{w, Tile<P>{w.same, plan, scratch, layout.tile, range, Range{}, kTileKeys}, layout, w.n.absorbed(),
                latent_row_bytes(w.a.latent_dim, w.a.rope_dim, w.a.kv_dtype),
                !apart && !Absorbed<P>::kShared && reads_rows(w), apart};
  const Tile<P>& t = e.t;
  load_panels(w, t, e.panels(), scratch + layout.stage);
  if (picked) {
    auto positions = reinterpret_cast<int32_t*>(scratch + layout.positions);
    e.positions = positions;
    attend_keys(e, 0, list_positions(w, t, positions));
  } else {
    attend_keys(e, range.first_key, range.last_key);
  }
  if (range.partial < 0) return finish(t);
  write_partials(t, w.partials + range.partial * partial_floats(plan.group, w.n.latent));
}

template <typename P>
void attend_absorbed(const LatentWork<P>& w, const Range& range, char* scratch) {
  attend_range(w, range, scratch, [&](const Tile<P>& t) {
    write_tile(t, w.a.dtype, w.a.found, w.same.out_stride, w.n.latent);
  });
}

// Unit `unit` of a row whose queries see picked keys: a query, or a range of the only one's picks.
template <typename P>
Range picked_unit(const LatentWork<P>& w, int64_t row, int64_t unit) {
  if (w.a.query_starts[row + 1] - w.a.query_starts[row] > 1) return {row, 0, unit, unit + 1, 0, w.a.picks, -1};
  int64_t splits = splits_over(w.single, w.a.picks), partial = splits > 1 ? row * w.single.splits + unit : -1;
  return {row, 0, 0, 1, w.a.picks * unit / splits, w.a.picks * (unit + 1) / splits, partial};
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
