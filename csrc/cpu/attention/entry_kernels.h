// Attention to compressed entries for the instruction set of the including file, in namespace core::CORE_VARIANT:
// latent attention in the absorbed form, whose latents are the entries and whose queries meet them as they are.
#include <cmath>

#include "attention/copies.h"
#include "attention/entries.h"
#include "attention/latent_plan.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif
#include "attention/absorbed_units.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

inline core_latent_attention_args as_latents(const core_entry_attention_args& e) {
  core_latent_attention_args a{};
  a.q_rope = a.absorbed = e.q;
  a.cache = e.cache;
  a.found = e.out;
  a.picked = e.picked;
  a.query_starts = e.query_starts;
  a.seq_lens = e.seq_lens;
  a.table = e.table;
  a.scratch = e.scratch;
  a.rows = e.rows;
  a.heads = e.heads;
  a.latent_dim = e.head_dim;
  a.block_size = e.block_size;
  a.picks = e.picks;
  a.table_stride = e.table_stride;
  a.dtype = e.dtype;
  a.kv_dtype = e.kv_dtype;
  a.threads = e.threads;
  a.scale = e.scale;
  return a;
}

// The logarithm of a sum of 2^maximum; minus infinity for none.
inline float log_of(float maximum, float sum) {
  return sum > 0.0f ? (maximum + std::log2(sum)) / kLog2E : sum == 0.0f ? -__builtin_inff() : sum;
}

inline float inverse_of(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

template <typename P>
void write_entries(const core_entry_attention_args& e, const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t at = t.token(r) * e.heads + t.query_head(r), dims = t.a.head_dim;
    write_found(t.o() + r * dims, inverse_of(t.sums()[r]), e.out + at * dims, dims);
    e.sums[at] = log_of(t.maxima()[r], t.sums()[r]);
  }
}

// Joins what the entries of a decode row were cut into.
template <typename P>
void merge_entries(const core_entry_attention_args& e, const LatentWork<P>& w, int64_t row, int64_t splits) {
  int64_t dims = w.n.latent, each = partial_floats(e.heads, dims), floats = e.heads * dims;
  const float* partials = w.partials + row * w.plan.splits * each;
  for (int64_t head = 0; head < e.heads; ++head) {
    float best = -__builtin_inff(), total = 0.0f, weights[kMaxSplits];
    for (int64_t i = 0; i < splits; ++i) best = std::fmax(best, partials[i * each + floats + head]);
    for (int64_t i = 0; i < splits; ++i) {
      float maximum = partials[i * each + floats + head];
      weights[i] = maximum == best ? 1.0f : exp2(splat(maximum - best))[0];
      total += weights[i] * partials[i * each + floats + e.heads + head];
    }
    int64_t at = e.query_starts[row] * e.heads + head;
    e.sums[at] = log_of(best, total);
    for (int64_t d = 0; d < dims; d += kLanes) {
      vf value = {};
      for (int64_t i = 0; i < splits; ++i) value += load(partials + i * each + head * dims + d) * weights[i];
      store(e.out + at * dims + d, value * inverse_of(total));
    }
  }
}

template <typename P>
int64_t entry_splits(const LatentWork<P>& w, int64_t row) {
  return splits_over(w.plan, w.picks(row) ? w.a.picks : w.keys_of(row));
}

template <typename P>
int64_t entry_units(const LatentWork<P>& w, int64_t row) {
  int64_t queries = w.a.query_starts[row + 1] - w.a.query_starts[row];
  if (queries == 1) return entry_splits(w, row);
  return w.picks(row) ? queries : ceil_div(queries, w.plan.tile_queries);
}

// Unit `unit` of a row. Later queries see more: they come first.
template <typename P>
Range entry_unit(const LatentWork<P>& w, int64_t row, int64_t unit) {
  if (w.picks(row)) return picked_unit(w, row, unit);
  int64_t queries = w.a.query_starts[row + 1] - w.a.query_starts[row], keys = w.keys_of(row);
  if (queries == 1) {
    int64_t splits = entry_splits(w, row);
    auto cut = [&](int64_t i) { return i == splits ? keys : keys * i / splits / kCut * kCut; };
    return {row, 0, 0, 1, cut(unit), cut(unit + 1), splits > 1 ? row * w.plan.splits + unit : -1};
  }
  int64_t each = w.plan.tile_queries, begin = (ceil_div(queries, each) - 1 - unit) * each;
  int64_t end = begin + each < queries ? begin + each : queries;
  return {row, 0, begin, end, 0, (w.a.seq_lens[row] - queries + end) / w.ratio, -1};
}

template <typename P>
void attend_entries(const core_entry_attention_args& e) {
  constexpr int64_t small = 1 << 16;
  core_latent_attention_args a = as_latents(e);
  LatentSizes n = latent_sizes(a);
  int64_t work = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    work += static_cast<int64_t>(a.query_starts[row + 1] - a.query_starts[row]) * (a.seq_lens[row] / e.ratio);
  }
  core_attention_args same = as_attention(a, n);
  int64_t threads = same.threads = work * e.heads * e.head_dim < small ? 1 : e.threads;
  Plan plan = make_plan(same, a.rows, P::kTileRows, kTileKeys), single = make_plan(same, a.rows, 1, kTileKeys);
  int64_t each = latent_thread_bytes(n, a.heads, a.picks);
  auto partials = reinterpret_cast<float*>(static_cast<char*>(a.scratch) + each * a.threads);
  LatentWork<P> w{a, n, same, plan, single, partials, e.ratio};
  auto units_in = [&](int64_t row) { return entry_units(w, row); };
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* mine = static_cast<char*>(a.scratch) + thread * each;
    Rows rows(a.rows, units_in);
    for (int64_t piece; pieces.take(&piece);) {
      if (!rows.find(dealt.unit(piece))) continue;
      Range range = entry_unit(w, rows.row(), rows.within());
      attend_range(w, range, mine, [&](const Tile<P>& t) { write_entries(e, t); });
    }
  });
  if (plan.splits == 1) return;
  run_pieces(threads, a.rows, [&](int64_t, Pieces& pieces) {
    for (int64_t row; pieces.take(&row);) {
      int64_t splits = a.query_starts[row + 1] - a.query_starts[row] == 1 ? entry_splits(w, row) : 1;
      if (splits > 1) merge_entries(e, w, row, splits);
    }
  });
}

}  // namespace

void entry_attention(const core_entry_attention_args* e) {
  using Plain = Products<float, Loops<Widened<float>>, true>;
  if (e->dtype == CORE_F32) return attend_entries<Plain>(*e);
#if defined(__AMX_BF16__)
  if (round_up(e->head_dim, kVector) % 32 == 0) return attend_entries<Products<bf16, Tiles, true>>(*e);
  attend_entries<Plain>(*e);
#elif defined(CORE_ATTENTION_DOT)
  attend_entries<Products<bf16, Loops<Dot>, true>>(*e);
#else
  attend_entries<Plain>(*e);
#endif
}

}  // namespace CORE_VARIANT
}  // namespace core
