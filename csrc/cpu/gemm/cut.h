// How a product is cut: a share a thread, and pieces of it that are handed out. Arithmetic alone.
#pragma once

#include "gemm/walk.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kOwnTiles = 4;            // row tiles for each thread from which rows are divided, not channels
constexpr int64_t kPieceBytes = 128 << 10;  // of weights, that a piece reads: some 5 us at a core's rate
constexpr int64_t kPieceRows = 64;          // rows from which it takes longer to multiply weights than to read them
constexpr int64_t kRowSteps = 8;             // row tiles of a piece that reads all weights for itself
constexpr int64_t kMostEach = 64;            // pieces of a share

// Threads stand in a grid over rows and channels.
struct Grid {
  int64_t rows, columns;
};

// The grid whose slowest thread has the least tiles; of equals the one with fewest row parts, which reads weights once.
// Many rows are divided (if `by_rows`) even where that is a little less even: then threads share no activations, neither
// here nor with what comes before and after.
inline Grid grid_of(int64_t threads, int64_t row_tiles, int64_t column_tiles, bool by_rows) {
  Grid best{1, threads};
  int64_t least = row_tiles * ceil_div(column_tiles, threads);
  int64_t tallest = ceil_div(row_tiles, threads) * column_tiles;
  if (by_rows && row_tiles >= kOwnTiles * threads && tallest <= least + least / 8) return {threads, 1};
  for (int64_t rows = 2; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    int64_t most = ceil_div(row_tiles, rows) * ceil_div(column_tiles, threads / rows);
    if (most < least) {
      least = most;
      best = {rows, threads / rows};
    }
  }
  return best;
}

// Row tiles and panels, each from a first to behind a last one.
struct Part {
  int64_t row, row_end, panel, panel_end;
};

// Shares are even in panels (and row tiles), not in tiles of several panels: the last tile of a share may be narrower.
// Inside a share tiles stay whole, so that what is computed side by side does not depend on the pieces.
struct Cut {
  Grid grid;
  int64_t row_tiles, panels;
  bool by_rows;  // whether it is rows that the pieces of a share divide: each prepares its own
  int64_t step;  // what they have a whole number of, except a share's last: row tiles or panels
  int64_t each;  // pieces of a share

  int64_t pieces() const { return grid.rows * grid.columns * each; }
  Part share(int64_t share) const;
  Part piece(int64_t piece) const;
};

inline Part Cut::share(int64_t share) const {
  int64_t row = share / grid.columns, column = share % grid.columns;
  return {row_tiles * row / grid.rows, row_tiles * (row + 1) / grid.rows, panels * column / grid.columns,
          panels * (column + 1) / grid.columns};
}

// The shares' pieces follow each other, so that a team of as many threads as there are shares has one a thread.
inline Part Cut::piece(int64_t piece) const {
  Part part = share(piece / each);
  int64_t& first = by_rows ? part.row : part.panel;
  int64_t& last = by_rows ? part.row_end : part.panel_end;
  int64_t at = piece % each, steps = ceil_div(last - first, step), begin = first;
  first = smaller(begin + steps * at / each * step, last);
  last = smaller(begin + steps * (at + 1) / each * step, last);
  return part;
}

// Pieces that a share of so many bytes of weights, met by so many rows, is worth, of `most` at most.
inline int64_t worth(int64_t bytes, int64_t rows, int64_t most) {
  int64_t pieces = bytes * (rows > kPieceRows ? rows : kPieceRows) / (kPieceRows * kPieceBytes);
  pieces = smaller(smaller(pieces, most), kMostEach);
  return pieces > 1 ? pieces : 1;
}

}  // namespace
}  // namespace gemm
}  // namespace core
