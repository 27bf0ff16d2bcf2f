#include "ropewalk/rotary/positions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ropewalk/base/error.h"
#include "src/rotary/double_double.h"

namespace ropewalk {
namespace {

// Positions of one sequence that a table can hold.
constexpr int64_t kMostTokens = int64_t{1} << 31;

[[noreturn]] void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "positions: " + message);
}

std::string Decimal(int64_t n) { return std::to_string(n); }

int64_t AxesOf(PositionRule rule) {
  switch (rule) {
    case PositionRule::kFlat:
      return 1;
    case PositionRule::kQwen2Vl:
    case PositionRule::kQwen25Vl:
    case PositionRule::kQwen3Vl:
    case PositionRule::kErnie:
      return 3;
    case PositionRule::kXdRope:
      return 4;
    case PositionRule::kRopeTie:
    case PositionRule::kRopeTv:
      return 2;
  }
  Bad("rule: not a value of PositionRule");
}

bool IsArticle(PositionRule rule) {
  return rule == PositionRule::kRopeTie || rule == PositionRule::kRopeTv;
}

void CheckGrid(int64_t frames, int64_t height, int64_t width) {
  int64_t product = 0;
  if (frames < 1 || height < 1 || width < 1 || __builtin_mul_overflow(frames, height, &product) ||
      __builtin_mul_overflow(product, width, &product) || product > kMostTokens) {
    Bad("a grid must have 1 to 2147483648 patches, got " + Decimal(frames) + " x " +
        Decimal(height) + " x " + Decimal(width));
  }
}

}  // namespace

PositionBuilder::PositionBuilder(const PositionRuleSpec& spec, int64_t start)
    : spec_(spec), axes_(AxesOf(spec.rule)), next_(start) {
  if (start < 0 || start >= kMostTokens)
    Bad("start must be 0 to 2147483647, got " + Decimal(start));
  if (spec.spatial_merge < 1 || spec.temporal_merge < 1) {
    Bad("spatial_merge and temporal_merge must be at least 1, got " + Decimal(spec.spatial_merge) +
        " and " + Decimal(spec.temporal_merge));
  }
  if (!(spec.tokens_per_second > 0 && std::isfinite(spec.tokens_per_second))) {
    Bad("tokens_per_second must be positive, got " + std::to_string(spec.tokens_per_second));
  }
}

template <class F>
void PositionBuilder::AddWhole(F add) {
  const std::size_t size = values_.size();
  const int64_t next = next_, images = images_;
  try {
    add();
  } catch (...) {
    values_.resize(size);
    next_ = next, images_ = images;
    throw;
  }
}

void PositionBuilder::Text(int64_t tokens) {
  if (tokens < 0 || tokens > kMostTokens) {
    Bad("text must have 0 to 2147483648 tokens, got " + Decimal(tokens));
  }
  AddWhole([&] {
    for (int64_t i = 0; i < tokens; ++i, next_ += denominator_) {
      values_.insert(values_.end(), static_cast<std::size_t>(axes_), next_);
    }
  });
}

PositionBuilder::Grid PositionBuilder::Merge(int64_t frames, int64_t height, int64_t width) const {
  CheckGrid(frames, height, width);
  const int64_t merge = spec_.spatial_merge;
  if (height % merge != 0 || width % merge != 0) {
    Bad("a grid of " + Decimal(height) + " x " + Decimal(width) +
        " patches is not a multiple of spatial_merge " + Decimal(merge));
  }
  Grid grid{frames, height / merge, width / merge};
  if (spec_.rule == PositionRule::kErnie && frames > 1) {
    if (frames % spec_.temporal_merge != 0) {
      Bad(Decimal(frames) + " frames are not a multiple of temporal_merge " +
          Decimal(spec_.temporal_merge));
    }
    grid.frames = frames / spec_.temporal_merge;
  }
  return grid;
}

void PositionBuilder::Image(int64_t height, int64_t width) {
  const Grid grid = Merge(1, height, width);
  if (IsArticle(spec_.rule)) return AddArticle(grid);
  AddWhole([&] { spec_.rule == PositionRule::kXdRope ? AddXd(grid) : Add(grid, 0); });
}

void PositionBuilder::Video(int64_t frames, int64_t height, int64_t width,
                            double seconds_per_grid) {
  if (spec_.rule == PositionRule::kQwen3Vl) {
    Bad("a video of Qwen3-VL is images behind timestamps: use TimestampedVideo");
  }
  if (IsArticle(spec_.rule) || spec_.rule == PositionRule::kXdRope)
    Bad("this rule has no axis of time; it takes images");
  if (!(seconds_per_grid >= 0 && seconds_per_grid < 1e6)) {
    Bad("seconds_per_grid must be 0 to 1e6, got " + std::to_string(seconds_per_grid));
  }
  const Grid grid = Merge(frames, height, width);
  AddWhole([&] { Add(grid, seconds_per_grid); });
}

void PositionBuilder::TimestampedVideo(std::span<const int64_t> timestamp_tokens, int64_t height,
                                       int64_t width) {
  if (spec_.rule != PositionRule::kQwen3Vl) Bad("TimestampedVideo is of kQwen3Vl alone");
  AddWhole([&] {
    for (const int64_t tokens : timestamp_tokens) {
      Text(tokens);
      Image(height, width);
    }
  });
}

void PositionBuilder::Add(const Grid& grid, double seconds_per_grid) {
  if (spec_.rule == PositionRule::kFlat) return Text(grid.frames * grid.rows * grid.columns);
  const int64_t start = next_;
  const bool seconds = spec_.rule == PositionRule::kQwen25Vl;
  int64_t time = 0;
  for (int64_t t = 0; t < grid.frames; ++t) {
    time = t;
    if (seconds) {
      const float at = static_cast<float>(t) * static_cast<float>(seconds_per_grid) *
                       static_cast<float>(spec_.tokens_per_second);
      if (!(at < static_cast<float>(kMostTokens)))
        Bad("a frame is over 2^31 tokens from the first");
      time = static_cast<int64_t>(at);
    }
    for (int64_t h = 0; h < grid.rows; ++h) {
      for (int64_t w = 0; w < grid.columns; ++w) {
        values_.insert(values_.end(), {start + time, start + h, start + w});
      }
    }
  }
  next_ = start + std::max({time, grid.rows - 1, grid.columns - 1}) + 1;
}

void PositionBuilder::AddXd(const Grid& grid) {
  for (int64_t h = 0; h < grid.rows; ++h) {
    for (int64_t w = 0; w <= grid.columns; ++w, ++next_) {
      values_.insert(values_.end(), {next_, w, h, images_});
    }
  }
  ++images_;
}

void PositionBuilder::NeedDenominator(int64_t denominator) {
  const int64_t factor = denominator / std::gcd(denominator_, denominator);
  if (factor == 1) return;
  int64_t largest = next_, common = 0;
  for (const int64_t v : values_) largest = std::max(largest, v);
  if (__builtin_mul_overflow(denominator_, factor, &common) ||
      __builtin_mul_overflow(largest, factor, &largest) || largest >= int64_t{1} << 53) {
    Bad("the common denominator of these images is too large; give them equal sizes");
  }
  denominator_ = common;
  for (int64_t& v : values_) v *= factor;
  next_ *= factor;
}

void PositionBuilder::AddArticle(const Grid& grid) {
  const int64_t w = grid.columns, h = grid.rows, room = w * h;
  const bool even = spec_.rule == PositionRule::kRopeTie;
  // Position of patch 1 and distance to the next, both over `below`.
  struct Ladder {
    int64_t first, step, below;
  };
  const auto ladder = [&](int64_t n) {
    if (!even) return Ladder{room - n + 2, 2, 2};
    const int64_t common = std::gcd(room + 1, n + 1);
    return Ladder{(room + 1) / common, (room + 1) / common, (n + 1) / common};
  };
  const Ladder x = ladder(h), y = ladder(w);  // down the rows, along the columns
  const auto is_whole = [](const Ladder& l) {
    return l.first % l.below == 0 && l.step % l.below == 0;
  };
  NeedDenominator(std::lcm(is_whole(x) ? 1 : x.below, is_whole(y) ? 1 : y.below));
  const int64_t before = next_ - denominator_;  // the last position of the text before
  const auto at = [&](const Ladder& l, int64_t i) {
    return before + (l.first + i * l.step) * denominator_ / l.below;
  };
  AddWhole([&] {
    for (int64_t row = 0; row < h; ++row) {
      for (int64_t column = 0; column < w; ++column) {
        values_.insert(values_.end(), {at(x, row), at(y, column)});
      }
    }
    next_ += room * denominator_;
  });
}

TokenPositions PositionBuilder::Build() const {
  TokenPositions out;
  out.axes = axes_;
  out.tokens = static_cast<int64_t>(values_.size()) / axes_;
  out.denominator = denominator_;
  out.next = next_;
  for (int64_t axis = 0; axis < axes_; ++axis) {
    for (int64_t t = 0; t < out.tokens; ++t) {
      out.values.push_back(values_[static_cast<std::size_t>(t * axes_ + axis)]);
    }
  }
  return out;
}

Frequencies PerUnit(const Frequencies& frequencies, int64_t denominator) {
  using internal::operator/;  // NOLINT(misc-unused-using-decls): the linter misses operators
  if (denominator < 1) Bad("denominator must be at least 1, got " + Decimal(denominator));
  Frequencies out = frequencies;
  for (DoubleDouble& f : out.inv_freq) f = f / static_cast<double>(denominator);
  for (float& f : out.inv_freq_f32) f /= static_cast<float>(denominator);
  for (double& d : out.log_decay) d /= static_cast<double>(denominator);
  out.decay_centre *= static_cast<double>(denominator);
  return out;
}

TokenPositions VisionTowerPositions(int64_t frames, int64_t height, int64_t width, int64_t merge) {
  CheckGrid(frames, height, width);
  if (merge < 1 || height % merge != 0 || width % merge != 0) {
    Bad("a grid of " + Decimal(height) + " x " + Decimal(width) +
        " patches is not a multiple of merge " + Decimal(merge));
  }
  TokenPositions out;
  out.axes = 2;
  out.tokens = frames * height * width;
  std::vector<int64_t> columns;
  for (int64_t frame = 0; frame < frames; ++frame) {
    for (int64_t block_h = 0; block_h < height; block_h += merge) {
      for (int64_t block_w = 0; block_w < width; block_w += merge) {
        for (int64_t i = 0; i < merge * merge; ++i) {
          out.values.push_back(block_h + i / merge);
          columns.push_back(block_w + i % merge);
        }
      }
    }
  }
  out.values.insert(out.values.end(), columns.begin(), columns.end());
  out.next = std::max(height, width);
  return out;
}

}  // namespace ropewalk
