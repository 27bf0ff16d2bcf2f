#include "ropewalk/rotary/table.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/base/parallel.h"
#include "src/rotary/angle_scratch.h"
#include "src/rotary/table_cpu.h"

namespace ropewalk {
namespace {

using internal::Uint128;

constexpr int64_t kPositionLimit = int64_t{1} << 31;
// position = 64 * coarse + fine. 64 rows of either kind make 4096 positions for 128 sine
// evaluations a pair, and 64 fine rows of 64 pairs are 64 KiB: they stay in L2.
constexpr int kFineBits = 6;
constexpr int64_t kFineRows = int64_t{1} << kFineBits;

// Everything a row needs besides its position; shared by threads.
class ExactRows {
 public:
  explicit ExactRows(const Frequencies& frequencies)
      : pairs_(frequencies.inv_freq.size()),
        padded_(internal::PaddedPairs(pairs_)),
        amplitude_(frequencies.amplitude),
        fine_(static_cast<std::size_t>(kFineRows) * 2 * padded_) {
    turns_.reserve(padded_);
    for (const DoubleDouble& f : frequencies.inv_freq) turns_.push_back(internal::ToTurns(f));
    turns_.resize(padded_, 0);
  }

  std::size_t pairs() const { return pairs_; }

  // Scratch of one thread: a coarse row and the angles it is made from.
  struct Scratch {
    explicit Scratch(const ExactRows& rows) : row(2 * rows.padded_), angles(rows.padded_) {}
    AlignedBuffer<double> row;  // [2, padded]
    internal::AngleScratch angles;
    int64_t coarse = -1;
  };

  // Makes fine rows first .. last ready.
  void PrepareFine(int64_t first, int64_t last, Scratch& scratch) {
    for (int64_t r = first; r <= last; ++r) {
      if (!ready_[r]) SinCos(r, scratch, FineRow(r));
      ready_[r] = true;
    }
  }

  // Rows of positions first .. first + count - 1, all in one block of kFineRows, prepared.
  void Fill(int64_t first, int64_t count, Scratch& scratch, float* out) const {
    const int64_t coarse = first >> kFineBits;
    if (scratch.coarse != coarse) {
      SinCos(coarse << kFineBits, scratch, scratch.row.data());
      scratch.coarse = coarse;
    }
    internal::CombineRows(scratch.row.data(), FineRow(first & (kFineRows - 1)), padded_, pairs_,
                          amplitude_, static_cast<std::size_t>(count), out);
  }

 private:
  double* FineRow(int64_t r) { return fine_.data() + static_cast<std::size_t>(r) * 2 * padded_; }
  const double* FineRow(int64_t r) const {
    return fine_.data() + static_cast<std::size_t>(r) * 2 * padded_;
  }

  void SinCos(int64_t position, Scratch& scratch, double* row) const {
    scratch.angles.SinCos([&](std::size_t i) { return turns_[i] * static_cast<Uint128>(position); },
                          row);
  }

  std::size_t pairs_;
  std::size_t padded_;
  double amplitude_;
  std::vector<Uint128> turns_;  // [padded], the padding does not move
  AlignedBuffer<double> fine_;  // [kFineRows, 2, padded]
  bool ready_[kFineRows] = {};
};

// What Hugging Face computes: the angle is a float32 product of a float32 position. Its cosine and
// sine come from double and are rounded once, within 0.501 ULP of that angle's.
void FillFloat32(const Frequencies& frequencies, int64_t position, float* out) {
  const std::size_t pairs = frequencies.inv_freq_f32.size();
  const float p = static_cast<float>(position);
  const float amplitude = static_cast<float>(frequencies.amplitude);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(p * frequencies.inv_freq_f32[i]);
    out[i] = static_cast<float>(std::cos(angle)) * amplitude;
    out[pairs + i] = static_cast<float>(std::sin(angle)) * amplitude;
  }
}

void CheckPosition(int64_t position) {
  if (position < 0 || position >= kPositionLimit) {
    throw Error(ErrorCode::kInvalidArgument,
                "table: positions are 0 to 2147483647, got " + std::to_string(position));
  }
}

void CheckFrequencies(const Frequencies& frequencies) {
  if (frequencies.inv_freq.size() != frequencies.inv_freq_f32.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "table: inv_freq has " + std::to_string(frequencies.inv_freq.size()) +
                    " pairs and inv_freq_f32 " + std::to_string(frequencies.inv_freq_f32.size()));
  }
}

// Positions first .. first + count - 1 in order.
void FillRange(const Frequencies& frequencies, int64_t first, int64_t count,
               AnglePrecision precision, float* out) {
  const int64_t row_size = 2 * static_cast<int64_t>(frequencies.inv_freq.size());
  if (count <= 0 || row_size == 0) return;
  if (precision == AnglePrecision::kFloat32) {
    const int threads = internal::ThreadsFor(count * row_size * 8);  // libm, 16 ns a pair
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t r = 0; r < count; ++r) {
      FillFloat32(frequencies, first + r, out + r * row_size);
    }
    return;
  }
  ExactRows rows(frequencies);
  const int64_t end = first + count;
  const int64_t first_block = first >> kFineBits;
  const int64_t last_block = (end - 1) >> kFineBits;
  ExactRows::Scratch scratch(rows);
  if (first_block == last_block) {
    rows.PrepareFine(first & (kFineRows - 1), (end - 1) & (kFineRows - 1), scratch);
  } else {
    rows.PrepareFine(0, kFineRows - 1, scratch);
  }
  // Allocated out here: an exception must not leave a parallel region.
  std::vector<ExactRows::Scratch> scratches;
  const int threads = internal::ThreadsFor(count * row_size / 2);
  for (int t = 1; t < threads; ++t) scratches.emplace_back(rows);
  scratches.push_back(std::move(scratch));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t block = first_block; block <= last_block; ++block) {
    const int64_t from = std::max(first, block << kFineBits);
    const int64_t to = std::min(end, (block + 1) << kFineBits);
    rows.Fill(from, to - from, scratches[static_cast<std::size_t>(omp_get_thread_num())],
              out + (from - first) * row_size);
  }
}

}  // namespace

CosSinTable::CosSinTable(const Frequencies& frequencies, int64_t first, int64_t count,
                         AnglePrecision precision)
    : frequencies_(frequencies),
      precision_(precision),
      first_(first),
      pairs_(static_cast<int64_t>(frequencies.inv_freq.size())) {
  CheckFrequencies(frequencies);
  CheckPosition(first);
  Grow(count);
}

CosSinTable CosSinTable::FromRows(AlignedBuffer<float> rows, int64_t pairs) {
  const int64_t size = static_cast<int64_t>(rows.size());
  if (pairs < 1 || size % (2 * pairs) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "table: rows of " + std::to_string(size) +
                                                 " elements are not [count, 2, " +
                                                 std::to_string(pairs) + "]");
  }
  CosSinTable table;
  table.count_ = size / (2 * pairs);
  table.pairs_ = pairs;
  table.given_ = true;
  table.rows_ = std::move(rows);
  return table;
}

void CosSinTable::Grow(int64_t count) {
  if (count < 0 || count > kPositionLimit - first_) {
    throw Error(ErrorCode::kInvalidArgument, "table: expected 0 to " +
                                                 std::to_string(kPositionLimit - first_) +
                                                 " positions from " + std::to_string(first_) +
                                                 " on, got " + std::to_string(count));
  }
  if (count <= count_) return;
  if (given_) {
    throw Error(ErrorCode::kInvalidArgument, "table: its " + std::to_string(count_) +
                                                 " rows were given, so it cannot grow to " +
                                                 std::to_string(count));
  }
  AlignedBuffer<float> rows(static_cast<std::size_t>(count) * 2 * static_cast<std::size_t>(pairs_));
  const int64_t kept = count_ * 2 * pairs_;
  if (kept > 0)
    std::memcpy(rows.data(), rows_.data(), static_cast<std::size_t>(kept) * sizeof(float));
  FillRange(frequencies_, first_ + count_, count - count_, precision_, rows.data() + kept);
  rows_ = std::move(rows);
  count_ = count;
}

void FillCosSin(const Frequencies& frequencies, std::span<const int64_t> positions,
                AnglePrecision precision, float* out) {
  CheckFrequencies(frequencies);
  for (const int64_t position : positions) CheckPosition(position);
  const std::size_t row_size = 2 * frequencies.inv_freq.size();
  if (positions.empty() || row_size == 0) return;
  if (precision == AnglePrecision::kFloat32) {
    for (const int64_t position : positions) {
      FillFloat32(frequencies, position, out);
      out += row_size;
    }
    return;
  }
  ExactRows rows(frequencies);
  ExactRows::Scratch scratch(rows);
  for (const int64_t position : positions) {
    const int64_t fine = position & (kFineRows - 1);
    rows.PrepareFine(fine, fine, scratch);
    rows.Fill(position, 1, scratch, out);
    out += row_size;
  }
}

}  // namespace ropewalk
