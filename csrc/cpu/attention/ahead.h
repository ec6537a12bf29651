// Keys and values of a cache that are asked for while others are read.
//
// Memory sets the pace of a tile of few query vectors, and the processor's own prefetching ends at a page, of which the
// keys (or values) that a block has of one kv head fill one or less. So loops ask for as many bytes as they read, what
// they read a little later. AMX takes a tile with one instruction: there the same is asked for at once.
#pragma once

#include "attention/tile.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Keys or values that are read one after the other: block by block, kv head by kv head.
template <typename S>
struct Stretch {
  const S* from = nullptr;  // those of the first kv head in block 0
  const int32_t* table = nullptr;
  int64_t heads = 0, blocks = 0;
};

template <typename S>
Stretch<S> stretch_of(const core_attention_args& a, const Range& range, int64_t part, int64_t first, int64_t last) {
  int64_t block = first / a.block_size, per_head = head_elements<S>(a.block_size, a.head_dim);
  auto from = static_cast<const S*>(a.cache) + (part * a.kv_heads + range.head) * per_head;
  return {from, a.table + range.row * a.table_stride + block, range.heads, ceil_div(last, a.block_size) - block};
}

// What to ask for during a pass over the keys (`part` 0) or the values (1) of `count` keys from `first` on: more of the
// pass, then keys of the next one, which begins before `end`, or else of the thread's next tile.
template <typename P>
class Ahead {
 public:
  using S = typename P::S;

  Ahead(const Tile<P>& t, int64_t first, int64_t count, int64_t end, int64_t part)
      : asks_(t.head_rows() <= kAskRows),
        per_head_(head_elements<S>(t.a.block_size, t.a.head_dim)),
        stride_(t.a.block_stride) {
    if (!asks_) return;
    int64_t filled = 0, after = first + count, last = after < t.range.last_key ? after : t.range.last_key;
    for (; part < 2; ++part) next_[filled++] = stretch_of<S>(t.a, t.range, part, first, last);
    if (after < end) {
      next_[filled] = stretch_of<S>(t.a, t.range, 0, after, t.range.last_key);
    } else if (t.after.last_key > 0) {
      next_[filled] = stretch_of<S>(t.a, t.after, 0, t.after.first_key, t.after.last_key);
    }
    if constexpr (P::kGathers) {
      stretch_ = 1;
    } else {
      for (int64_t bytes = 0; bytes == 0 || bytes + head_bytes() <= kAskedBytes; bytes += head_bytes()) take();
    }
  }

  // Calls body(ask), which reads `block`, those of the next kv head in turn.
  template <typename Body>
  CORE_INLINE void read(const S* block, const Body& body) {
    if (!asks_) return body(NoAsking{});
    if constexpr (P::kGathers) {
      ask_for_some();
      body(NoAsking{});
    } else {
      const char* later = take();
      body(Asking{later == nullptr ? 0 : later - reinterpret_cast<const char*>(block)});
    }
  }

 private:
  int64_t head_bytes() const { return per_head_ * static_cast<int64_t>(sizeof(S)); }

  // The next kv head's share of a block; null: there is none.
  CORE_INLINE const char* take() {
    while (stretch_ < 3 && block_ >= next_[stretch_].blocks) {
      ++stretch_;
      block_ = 0;
    }
    if (stretch_ == 3) return nullptr;
    const Stretch<S>& s = next_[stretch_];
    const S* found = s.from + s.table[block_] * stride_ + head_ * per_head_;
    if (++head_ == s.heads) {
      head_ = 0;
      ++block_;
    }
    return reinterpret_cast<const char*>(found);
  }

  // The processor follows several pages at the same time: so some are asked for line by line in turn, a part of each
  // with every call.
  void ask_for_some() {
    if (turn_ == kAbreast) turn_ = 0;
    if (turn_ == 0) {
      for (abreast_ = 0; abreast_ < kAbreast; ++abreast_) {
        from_[abreast_] = take();
        if (from_[abreast_] == nullptr) break;
      }
    }
    int64_t turn = turn_++, lines = head_bytes() / 64;
    if (turn >= abreast_) return;
    for (int64_t line = lines * turn / abreast_; line < lines * (turn + 1) / abreast_; ++line) {
      for (int64_t i = 0; i < abreast_; ++i) __builtin_prefetch(from_[i] + line * 64, 0, 2);
    }
  }

  static constexpr int64_t kAbreast = 4;

  bool asks_;
  int64_t per_head_, stride_, stretch_ = 0, block_ = 0, head_ = 0, abreast_ = 0, turn_ = 0;
  Stretch<S> next_[3];
  const char* from_[kAbreast];
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
