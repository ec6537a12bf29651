// Multi-head latent attention for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "attention/copies.h"
#include "attention/latent_plan.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif
#include "attention/expanded.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

inline int64_t queries_of(const core_latent_attention_args& a, int64_t row) {
  return a.query_starts[row + 1] - a.query_starts[row];
}

inline bool expands(const core_latent_attention_args& a, int64_t row) {
  return is_expanded(queries_of(a, row), a.seq_lens[row], a.latent_dim, a.key_dim, a.value_dim);
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
  int64_t of(const core_latent_attention_args& a, const core_attention_args& same, const Plan& plan,
             int64_t row) const {
    if (queries_of(a, row) < 1) return 0;
    return expands(a, row) ? a.heads * ceil_div(queries_of(a, row), chunk(a, row)) : units_of(same, plan, row);
  }
  // Unit `unit` of an expanded row. Later chunks see more keys: they come first.
  Range range(const core_latent_attention_args& a, int64_t row, int64_t unit) const {
    int64_t queries = queries_of(a, row), each = chunk(a, row), chunks = ceil_div(queries, each);
    int64_t begin = (chunks - 1 - unit / a.heads) * each, end = begin + each < queries ? begin + each : queries;
    return {row, unit % a.heads, begin, end, 0, a.seq_lens[row] - queries + end, -1};
  }
};

inline int64_t latent_work(const core_latent_attention_args& a) {
  int64_t pairs = 0;
  for (int64_t row = 0; row < a.rows; ++row) pairs += queries_of(a, row) * a.seq_lens[row];
  return pairs * a.heads * a.latent_dim;
}

template <typename P>
void attend_latent_batch(const core_latent_attention_args& a) {
  constexpr int64_t small = 1 << 16;
  LatentSizes n = latent_sizes(a);
  core_attention_args same = as_attention(a, n);
  int64_t threads = same.threads = latent_work(a) < small ? 1 : a.threads;
  Plan plan = make_plan(same, a.rows, P::kTileRows, kTileKeys);
  int64_t each = latent_thread_bytes(n, a.heads);
  LatentWork<P> work{a, n, same, plan, reinterpret_cast<float*>(static_cast<char*>(a.scratch) + each * a.threads)};
  LatentUnits units(a);
  auto units_in = [&](int64_t row) { return units.of(a, same, plan, row); };
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* mine = static_cast<char*>(a.scratch) + thread * each;
    Rows rows(a.rows, units_in);
    for (int64_t piece; pieces.take(&piece);) {
      if (!rows.find(dealt.unit(piece))) continue;
      int64_t row = rows.row(), unit = rows.within();
      expands(a, row) ? attend_expanded(work, units.range(a, row, unit), mine)
                      : attend_absorbed(work, unit_of(same, plan, row, unit), mine);
    }
  });
  if (plan.splits > 1) merge_all(same, plan, threads, work.partials, 1.0f);
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
