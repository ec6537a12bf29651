// Multi-head latent attention for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "attention/copies.h"
#include "attention/latent_plan.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif
#include "attention/absorbed_units.h"
#include "attention/expanded.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

inline int64_t queries_of(const core_latent_attention_args& a, int64_t row) {
  return a.query_starts[row + 1] - a.query_starts[row];
}

inline bool expands(const core_latent_attention_args& a, int64_t row) {
  return is_expanded(queries_of(a, row), a.seq_lens[row], a.latent_dim, a.key_dim, a.value_dim, a.picks);
}

// Rows in the expanded form, and the units of work of a row.
struct LatentUnits {
  int64_t expanded = 0;

  explicit LatentUnits(const core_latent_attention_args& a) {
    for (int64_t row = 0; row < a.rows; ++row) expanded += expands(a, row);
  }
  int64_t chunk(const core_latent_attention_args& a, int64_t row) const {
    return chunk_queries(queries_of(a, row), expanded * a.heads, a.threads);
  }
  template <typename P>
  int64_t of(const LatentWork<P>& w, int64_t row) const {
    int64_t queries = queries_of(w.a, row);
    if (queries < 1) return 0;
    if (expands(w.a, row)) return w.a.heads * ceil_div(queries, chunk(w.a, row));
    if (w.picks(row)) return queries == 1 ? splits_over(w.single, w.a.picks) : queries;
    return units_of(w.same, w.plan, row);
  }
  // Unit `unit` of an expanded row. Later chunks see more keys: they come first.
  Range range(const core_latent_attention_args& a, int64_t row, int64_t unit) const {
    int64_t queries = queries_of(a, row), each = chunk(a, row), chunks = ceil_div(queries, each);
    int64_t begin = (chunks - 1 - unit / a.heads) * each, end = begin + each < queries ? begin + each : queries;
    return {row, unit % a.heads, begin, end, 0, a.seq_lens[row] - queries + end, -1};
  }
};

template <typename P>
Range absorbed_unit(const LatentWork<P>& w, int64_t row, int64_t unit) {
  return w.picks(row) ? picked_unit(w, row, unit) : unit_of(w.same, w.plan, row, unit);
}

inline int64_t latent_work(const core_latent_attention_args& a) {
  int64_t pairs = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    pairs += queries_of(a, row) * (is_picked(a.seq_lens[row], a.picks) ? a.picks : a.seq_lens[row]);
  }
  return pairs * a.heads * a.latent_dim;
}

template <typename P>
void attend_latent_batch(const core_latent_attention_args& a) {
  constexpr int64_t small = 1 << 16;
  LatentSizes n = latent_sizes(a);
  core_attention_args same = as_attention(a, n);
  int64_t threads = same.threads = latent_work(a) < small ? 1 : a.threads;
  Plan plan = make_plan(same, a.rows, P::kTileRows, kTileKeys), single = make_plan(same, a.rows, 1, kTileKeys);
  int64_t each = latent_thread_bytes(n, a.heads, a.picks);
  auto partials = reinterpret_cast<float*>(static_cast<char*>(a.scratch) + each * a.threads);
  LatentWork<P> work{a, n, same, plan, single, partials};
  LatentUnits units(a);
  auto units_in = [&](int64_t row) { return units.of(work, row); };
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* mine = static_cast<char*>(a.scratch) + thread * each;
    Rows rows(a.rows, units_in);
    for (int64_t piece; pieces.take(&piece);) {
      if (!rows.find(dealt.unit(piece))) continue;
      int64_t row = rows.row(), unit = rows.within();
      expands(a, row) ? attend_expanded(work, units.range(a, row, unit), mine)
                      : attend_absorbed(work, absorbed_unit(work, row, unit), mine);
    }
  });
  if (plan.splits == 1) return;
  merge_rows(same, plan, threads, partials, 1.0f, [&](int64_t row) {
    return work.picks(row) ? splits_over(single, a.picks) : cut_of(same, plan, row).splits;
  });
}

inline void attend_latents(const core_latent_attention_args& a) {
  using Plain = Products<float, Loops<Widened<float>>, true>;
  if (a.dtype == CORE_F32) return attend_latent_batch<Plain>(a);
#if defined(__AMX_BF16__)
  LatentSizes n = latent_sizes(a);
  if ((n.latent | n.rope | n.key | n.value) % 32 == 0) return attend_latent_batch<Products<bf16, Tiles, true>>(a);
  attend_latent_batch<Plain>(a);
#elif defined(CORE_ATTENTION_DOT)
  attend_latent_batch<Products<bf16, Loops<Dot>, true>>(a);
#else
  attend_latent_batch<Plain>(a);
#endif
}

}  // namespace

void latent_attention(const core_latent_attention_args* a) { attend_latents(*a); }

}  // namespace CORE_VARIANT
}  // namespace core
