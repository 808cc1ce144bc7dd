// How Shampoo cuts a tensor into blocks, and where their statistics lie in its state: one run of numbers, block after block, for each axis
// a square matrix. A tensor of two dimensions and more is a matrix with a row for each output; one of fewer has a single axis.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "cohort/optim/tensor_info.h"

namespace cohort::optim {

struct ShampooBlock {
  std::size_t row, rows, column, columns;
  std::size_t left, right;  // first numbers of the statistics of rows and columns
};

// The statistics of one axis of one block.
struct ShampooSquare {
  std::size_t first, n;
};

struct ShampooBlocks {
  std::size_t rows = 1, columns = 1, numbers = 0;
  int axes = 1;
  std::vector<ShampooBlock> all{};

  ShampooBlocks(std::span<const std::int64_t> shape, std::size_t size) : axes(shape.size() < 2 ? 1 : 2) {
    if (!shape.empty()) rows = static_cast<std::size_t>(shape[0]);
    for (const auto n : shape.subspan(std::min<std::size_t>(1, shape.size()))) columns *= static_cast<std::size_t>(n);
    for (std::size_t r = 0; r < rows; r += size)
      for (std::size_t c = 0; c < columns; c += size) {
        ShampooBlock b{r, std::min(size, rows - r), c, std::min(size, columns - c), numbers, 0};
        b.right = b.left + b.rows * b.rows;
        numbers = b.right + (axes == 2 ? b.columns * b.columns : 0);
        all.push_back(b);
      }
  }
  std::vector<ShampooSquare> squares() const {
    std::vector<ShampooSquare> found;
    for (const ShampooBlock& b : all) {
      found.push_back({b.left, b.rows});
      if (axes == 2) found.push_back({b.right, b.columns});
    }
    return found;
  }
};

}  // namespace cohort::optim
