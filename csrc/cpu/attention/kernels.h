// Paged attention for the instruction set of the including file, in namespace core::CORE_VARIANT.
//
// One unit of work is one tile of query vectors against one range of keys, for one kv head or, in decode rows, several:
// scores of 128 keys, online softmax, product with the values, accumulators rescaled. Decode rows and prompts run the
// same code; they differ in how many query vectors share the pass.
#include "attention/ahead.h"
#include "attention/copies.h"
#include "attention/splits.h"
#include "attention/store.h"
#include "attention/tile.h"
#include "common/parallel.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif
#include "attention/encoder.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Products of the tile's queries and `count` keys from `first` on, read where they lie.
template <typename P>
void multiply_keys(const Tile<P>& t, int64_t first, int64_t count, int64_t end) {
  const core_attention_args& a = t.a;
  Ahead<P> ahead(t, first, count, end, 0);
  for_blocks(t, first, count, 0, [&](const typename P::S* keys, int64_t offset, int64_t at, int64_t here) {
    for_heads(t, keys, [&](const typename P::S* own, int64_t r) {
      ahead.read(own, [&](auto ask) {
        P::scores(t.q() + r * P::words(a.head_dim), own, t.s() + r * t.stride() + at, t.stride(), t.head_rows(),
                  a.head_dim, a.block_size, offset, here, ask);
      });
    });
  });
}

// Adds the tile's weights times the values of those keys.
template <typename P>
void multiply_values(const Tile<P>& t, int64_t first, int64_t count, int64_t end) {
  const core_attention_args& a = t.a;
  const float* corrections = t.corrections();  // applied by the first block's product
  Ahead<P> ahead(t, first, count, end, 1);
  for_blocks(t, first, count, 1, [&](const typename P::S* values, int64_t offset, int64_t at, int64_t here) {
    int64_t seen = t.range.last_key - first - at < here ? t.range.last_key - first - at : here;
    for_heads(t, values, [&](const typename P::S* own, int64_t r) {
      ahead.read(own, [&](auto ask) {
        P::accumulate(t.p() + P::words(r * t.stride() + at), P::words(t.stride()), own, t.o() + r * a.head_dim,
                      corrections == nullptr ? nullptr : corrections + r, t.head_rows(), a.head_dim, offset, seen, ask);
      });
    });
    corrections = nullptr;
  });
}

// The same of products that take the values of all keys at once; a tile's query vectors are of one kv head.
template <typename P>
void multiply_gathered_values(const Tile<P>& t, int64_t first, int64_t count, int64_t end,
                              const float* corrections) {
  const core_attention_args& a = t.a;
  const typename P::S* steps[kWideKeys / P::kKeys];
  int64_t found = 0;
  Ahead<P> ahead(t, first, count, end, 1);
  for_blocks(t, first, count, 1, [&](const typename P::S* values, int64_t offset, int64_t, int64_t here) {
    ahead.read(values, [&](auto) {
      for (int64_t k = 0; k < here; k += P::kKeys) steps[found++] = values + (offset + k) * a.head_dim;
    });
  });
  P::accumulate_gathered(t.p(), t.stride(), steps, found, t.o(), corrections, t.rows(), a.head_dim);
}

// The same two with copies of `kTileKeys` keys at a time.
template <typename P>
void multiply_copied_keys(const Tile<P>& t, int64_t first, int64_t count) {
  const core_attention_args& a = t.a;
  int64_t readable = round_up(t.range.last_key, 16) - first;  // a step of the products may be longer than a block
  for (int64_t done = 0; done < count; done += kTileKeys) {
    int64_t keys = count - done < kTileKeys ? count - done : kTileKeys;
    int64_t present = readable - done < keys ? readable - done : keys;
    for_blocks(t, first + done, present, 0, [&](const typename P::S* block, int64_t offset, int64_t at, int64_t here) {
      copy_keys(block, t.copy(), at, a.head_dim, a.block_size, offset, here);
    });
    for (int64_t k = 0; k < keys; k += kPanelKeys) {
      int64_t here = keys - k < kPanelKeys ? keys - k : kPanelKeys;
      const typename P::T* panel = t.copy() + k * a.head_dim;
      P::scores(t.q(), panel, t.s() + done + k, t.stride(), t.rows(), a.head_dim, kPanelKeys, 0, here);
    }
  }
}

template <typename P>
void multiply_copied_values(const Tile<P>& t, int64_t first, int64_t count) {
  const core_attention_args& a = t.a;
  int64_t seen = t.range.last_key - first < count ? t.range.last_key - first : count;
  for (int64_t done = 0; done < seen; done += kTileKeys) {
    int64_t tokens = seen - done < kTileKeys ? seen - done : kTileKeys;
    for_blocks(t, first + done, tokens, 1, [&](const typename P::S* block, int64_t offset, int64_t at, int64_t here) {
      copy_values(block, t.copy() + at * a.head_dim, a.head_dim, offset, here);
    });
    clear_values(t.copy(), a.head_dim, tokens, P::kKeys);
    P::accumulate(t.p() + P::words(done), P::words(t.stride()), t.copy(), t.o(), done == 0 ? t.corrections() : nullptr,
                  t.rows(), a.head_dim, 0, tokens);
  }
}

// Gathers the scales of `count` keys from `first` on, as far as there are tokens.
template <typename P>
void gather_scales(const Tile<P>& t, int64_t first, int64_t count) {
  const core_attention_args& a = t.a;
  int64_t present = t.range.last_key - first < count ? t.range.last_key - first : count;
  for (int64_t part = 0; part < 2; ++part) {
    for_blocks(t, first, present, part, [&](const typename P::S* block, int64_t offset, int64_t at, int64_t here) {
      for_heads(t, block, [&](const typename P::S* own, int64_t r) {
        float* to = (part == 0 ? t.key_scales(r) : t.value_scales(r)) + at;
        std::memcpy(to, scales_of(own, a.block_size, a.head_dim) + offset, static_cast<size_t>(here) * 4);
      });
    });
  }
}

// The tile against `count` keys from `first` on, of those before `end`; all are multiples of `P::kKeys`.
template <typename P>
void attend_keys(const Tile<P>& t, int64_t first, int64_t count, int64_t end) {
  if constexpr (Format<typename P::S>::kScaled) gather_scales(t, first, count);
  if constexpr (P::kCopied) {
    multiply_copied_keys(t, first, count);
  } else {
    multiply_keys(t, first, count, end);
  }
  bool corrected = false;
  for_rows(t, [&](int64_t r, int64_t position) {
    int64_t low = t.lowest(position) - first, high = position + 1 - first;
    int64_t limit = t.range.last_key - first;  // a split ends before the row does
    high = high < limit ? high : limit;
    low = low < 0 ? 0 : low < count ? low : count;
    high = high < count ? high : count;
    if constexpr (P::kGathers) {
      corrected |= softmax_row_once(t, r, low, high, count, first - position);
    } else {
      softmax_row(t, r, low, high, count, first - position);
    }
  });
  if constexpr (P::kGathers) {
    if (corrected) make_factors(t);
    multiply_gathered_values(t, first, count, end, corrected ? t.corrections() : nullptr);
  } else if constexpr (P::kCopied) {
    finish_pass(t);
    multiply_copied_values(t, first, count);
  } else {
    finish_pass(t);
    multiply_values(t, first, count, end);
  }
}

template <typename P>
void attend(const Tile<P>& t) {
  load_queries(t);
  P::enter(t.head_rows());
  int64_t first = t.range.first_key / P::kKeys * P::kKeys, end = round_up(t.range.last_key, P::kKeys);
  for (int64_t key = first; key < end; key += t.keys()) {
    attend_keys(t, key, end - key < t.keys() ? end - key : t.keys(), end);
  }
  if constexpr (P::kGathers) {
    for (int64_t r = 0; r < t.rows(); ++r) t.sums()[r] = sum(load(t.lane_sums(r)));
  }
  P::leave();
  // A partial result is without: it counts once, when the results are joined.
  if (t.a.sinks != nullptr && t.range.partial < 0) add_sinks(t);
}

template <typename P, typename Q>
void write_row(const Tile<P>& t, int64_t r) {
  const core_attention_args& a = t.a;
  Q* out = static_cast<Q*>(a.out) + t.token(r) * a.out_stride + t.query_head(r) * a.head_dim;
  float inverse = unit_of_values(t) / t.sums()[r];
  for (int64_t d = 0; d < a.head_dim; d += kLanes) store(out + d, load(t.o() + r * a.head_dim + d) * inverse);
}

template <typename P>
void write_rows(const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    t.a.dtype == CORE_BF16 ? write_row<P, bf16>(t, r) : write_row<P, float>(t, r);
  }
}

// Attends, and writes the rows of `out`, or else the partial result.
template <typename P>
void run_tile(const core_attention_args& a, const Plan& plan, char* scratch, float* partials, const Range& range,
              const Range& after) {
  Tile<P> tile{a, plan, scratch, tile_layout(plan.tile_rows, a.head_dim, a.head_dim, plan.pass), range, after};
  attend(tile);
  if (range.partial < 0) return write_rows(tile);
  write_partials(tile, partials + range.partial * partial_floats(plan.group, a.head_dim));
}

// `Few` and `Many` are the `Products` of tiles of few and of many query vectors.
template <typename Few, typename Many>
void attend_batch(const core_attention_args& a) {
  constexpr int64_t small = 1 << 16;
  int64_t threads = work_of(a) < small ? 1 : a.threads;
  core_attention_args sized = a;
  sized.threads = threads;
  Plan plan = make_plan(sized, a.rows, Many::kTileRows, Many::kPass);
  if (!Few::kGathers && plan.group <= kFewTileRows) plan.heads = plan.tile_queries;
  int64_t each = tile_layout(plan.tile_rows, a.head_dim, a.head_dim, plan.pass).bytes;
  auto scratch = static_cast<char*>(a.scratch);
  auto partials = reinterpret_cast<float*>(scratch + each * a.threads);
  auto units_in = [&](int64_t row) { return units_of(a, plan, row); };
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* mine = scratch + thread * each;
    Rows rows(a.rows, units_in);
    auto take = [&](Range& range) {
      range = Range{};
      for (int64_t piece; pieces.take(&piece);) {
        if (!rows.find(dealt.unit(piece))) continue;
        range = unit_of(a, plan, rows.row(), rows.within());
        return true;
      }
      return false;
    };
    Range range, after;
    for (bool more = take(range); more; range = after) {
      more = take(after);  // one ahead, so that its keys can be asked for
      bool few = (range.end - range.begin) * plan.group <= kFewTileRows;
      few ? run_tile<Few>(a, plan, mine, partials, range, after)
          : run_tile<Many>(a, plan, mine, partials, range, after);
    }
  });
  if (!is_split(a, plan)) return;
  merge_all(a, plan, threads, partials, Format<typename Few::S>::kUnit * static_cast<float>(a.value_scale));
}

// Products of few query vectors, which read a cache of elements `S` itself.
template <typename S>
struct Read {
  using type = Widened<S>;
};
#if defined(CORE_ATTENTION_WHOLE)
template <>
struct Read<i8> {
  using type = Whole;
};
#endif

template <typename S>
void attend_cache(const core_attention_args& a) {
  using Few = Products<S, Loops<typename Read<S>::type>, false>;
#if defined(__AMX_BF16__)
  if (a.dtype == CORE_BF16 && a.head_dim % 32 == 0) return attend_batch<Few, Products<S, Tiles, true>>(a);
#endif
  attend_batch<Few, Products<S, Loops<Widened<float>>, true>>(a);
}

template <>
void attend_cache<float>(const core_attention_args& a) {
  using Direct = Products<float, Loops<Widened<float>>, false>;
  attend_batch<Direct, Direct>(a);
}

template <>
void attend_cache<bf16>(const core_attention_args& a) {
#if defined(__AMX_BF16__)
  using Direct = Products<bf16, Tiles, false>;
  if (a.dtype == CORE_BF16 && a.head_dim % 32 == 0 && a.block_size % 32 == 0) return attend_batch<Direct, Direct>(a);
#elif defined(CORE_ATTENTION_DOT)
  using Direct = Products<bf16, Loops<Dot>, false>;
  if (a.dtype == CORE_BF16) return attend_batch<Direct, Direct>(a);
#endif
  attend_batch<Products<bf16, Loops<Widened<bf16>>, false>, Products<bf16, Loops<Widened<float>>, true>>(a);
}

}  // namespace

void attention(const core_attention_args* a) {
  switch (a->kv_dtype) {
    case CORE_F32: return attend_cache<float>(*a);
    case CORE_BF16: return attend_cache<bf16>(*a);
    case CORE_F16: return attend_cache<f16>(*a);
    case CORE_F8_E4M3: return attend_cache<e4m3>(*a);
    case CORE_F8_E5M2: return attend_cache<e5m2>(*a);
    default: return attend_cache<i8>(*a);
  }
}

void store_kv(const core_store_kv_args* a) {
  switch (a->kv_dtype) {
    case CORE_F32: return store_kv<float>(*a);
    case CORE_BF16: return store_kv<bf16>(*a);
    case CORE_F16: return store_kv<f16>(*a);
    case CORE_F8_E4M3: return store_kv<e4m3>(*a);
    case CORE_F8_E5M2: return store_kv<e5m2>(*a);
    default: return store_kv<i8>(*a);
  }
}

}  // namespace CORE_VARIANT
}  // namespace core
