#include "ropewalk/rotary/table.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/cos_sin_rows.h"
#include "src/base/parallel.h"
#include "src/rotary/angle_scratch.h"
#include "src/rotary/exact_angle.h"
#include "src/rotary/reduction.h"
#include "src/rotary/table_cpu.h"
#include "src/rotary/table_device.h"

namespace ropewalk {

// What all rows are made from. Some 60 ns a pair: more than the cosine and sine.
struct internal::ExactTurns {
  explicit ExactTurns(const Frequencies& frequencies)
      : pairs(frequencies.inv_freq.size()),
        padded(PaddedPairs(pairs)),
        amplitude(frequencies.amplitude) {
    of_pair.reserve(padded);
    for (const DoubleDouble& f : frequencies.inv_freq) of_pair.push_back(ToTurns(f));
    of_pair.resize(padded, 0);
  }

  std::size_t pairs, padded;
  double amplitude;
  std::vector<Uint128> of_pair;  // [padded], the padding does not move
};

namespace {

using internal::ExactTurns;
using internal::kFineBits;
using internal::kPositionLimit;
using internal::Uint128;

// position = 64 * coarse + fine. 64 rows of either kind make 4096 positions for 128 sine
// evaluations a pair, and 64 fine rows of 64 pairs are 64 KiB: they stay in L2.
constexpr int64_t kFineRows = int64_t{1} << kFineBits;

// Everything a row needs besides its position; shared by threads.
class ExactRows {
 public:
  // For at most `fine_rows` different fine rows.
  ExactRows(const ExactTurns& turns, int64_t fine_rows)
      : turns_(turns), fine_(static_cast<std::size_t>(fine_rows) * 2 * turns.padded) {}

  // Scratch of one thread: a coarse row and the angles it is made from.
  struct Scratch {
    explicit Scratch(const ExactRows& rows)
        : row(2 * rows.turns_.padded), angles(rows.turns_.padded) {}
    AlignedBuffer<double> row;  // [2, padded]
    internal::AngleScratch angles;
    int64_t coarse = -1;
  };

  // Makes fine rows first .. last ready. Rows prepared one after another stand so in memory.
  void PrepareFine(int64_t first, int64_t last, Scratch& scratch) {
    for (int64_t r = first; r <= last; ++r) {
      if (slot_[r] != 0) continue;
      slot_[r] = ++prepared_;
      SinCos(r, scratch, fine_.data() + Offset(r));
    }
  }

  // Rows of positions first .. first + count - 1, all in one block of kFineRows, prepared in order.
  void Fill(int64_t first, int64_t count, Scratch& scratch, float* out) const {
    const int64_t coarse = first >> kFineBits;
    if (scratch.coarse != coarse) {
      SinCos(coarse << kFineBits, scratch, scratch.row.data());
      scratch.coarse = coarse;
    }
    internal::CombineRows(scratch.row.data(), fine_.data() + Offset(first & (kFineRows - 1)),
                          turns_.padded, turns_.pairs, turns_.amplitude,
                          static_cast<std::size_t>(count), out);
  }

 private:
  std::size_t Offset(int64_t fine) const {
    return static_cast<std::size_t>(slot_[fine] - 1) * 2 * turns_.padded;
  }

  void SinCos(int64_t position, Scratch& scratch, double* row) const {
    const auto by = static_cast<Uint128>(position);
    scratch.angles.SinCos([&](std::size_t i) { return turns_.of_pair[i] * by; }, row);
  }

  const ExactTurns& turns_;
  AlignedBuffer<double> fine_;    // [fine_rows, 2, padded]
  int64_t slot_[kFineRows] = {};  // 1 and the row in fine_, or 0
  int64_t prepared_ = 0;
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
void FillExact(const ExactTurns& turns, int64_t first, int64_t count, float* out) {
  const int64_t row_size = 2 * static_cast<int64_t>(turns.pairs);
  if (count <= 0 || row_size == 0) return;
  const int64_t end = first + count;
  const int64_t first_block = first >> kFineBits;
  const int64_t last_block = (end - 1) >> kFineBits;
  const bool one_block = first_block == last_block;
  ExactRows rows(turns, one_block ? count : kFineRows);
  ExactRows::Scratch scratch(rows);
  if (one_block) {
    rows.PrepareFine(first & (kFineRows - 1), (end - 1) & (kFineRows - 1), scratch);
  } else {
    rows.PrepareFine(0, kFineRows - 1, scratch);
  }
  // Allocated out here: an exception must not leave a parallel region.
  std::vector<ExactRows::Scratch> scratches;
  const int threads = one_block ? 1 : internal::ThreadsFor(count * row_size / 2);
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

void internal::FillRows(const Frequencies& frequencies, int64_t first, int64_t count,
                        AnglePrecision precision, float* out) {
  if (precision == AnglePrecision::kExact) {
    return FillExact(ExactTurns(frequencies), first, count, out);
  }
  const int64_t row_size = 2 * static_cast<int64_t>(frequencies.inv_freq.size());
  const int threads = internal::ThreadsFor(count * row_size * 8);  // libm, 16 ns a pair
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < count; ++r) FillFloat32(frequencies, first + r, out + r * row_size);
}

CosSinTable::CosSinTable(const Frequencies& frequencies, int64_t first, int64_t count,
                         AnglePrecision precision, Device device, void* stream)
    : frequencies_(frequencies),
      precision_(precision),
      first_(first),
      pairs_(static_cast<int64_t>(frequencies.inv_freq.size())) {
  CheckFrequencies(frequencies);
  CheckPosition(first);
  if (device == Device::kCuda) MoveToDevice(stream);
  Grow(count, stream);
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
  table.data_ = table.rows_.data();
  return table;
}

CosSinTable CosSinTable::View(const float* rows, int64_t first, int64_t count, int64_t pairs,
                              double amplitude, std::span<const uint8_t> axis, Device device) {
  CheckPosition(first);
  if (count < 0 || count > kPositionLimit - first || pairs < 1 || (rows == nullptr && count > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "table: expected rows [count, 2, pairs] of positions below 2147483648, got " +
                    (rows == nullptr ? std::string("null") : std::to_string(count) + " rows") +
                    " of " + std::to_string(pairs) + " pairs from position " +
                    std::to_string(first) + " on");
  }
  CosSinTable table;
  table.frequencies_.amplitude = amplitude;
  if (!axis.empty()) {
    table.frequencies_.axis.assign(axis.begin(), axis.end());
    table.frequencies_.axes = *std::max_element(axis.begin(), axis.end()) + 1;
  }
  table.first_ = first;
  table.count_ = count;
  table.pairs_ = pairs;
  table.given_ = true;
  table.data_ = rows;
  if (device == Device::kCuda) {
    table.on_device_ = std::make_shared<internal::TableOnDevice>();
    table.on_device_->device = internal::CurrentDevice();
  }
  return table;
}

void CosSinTable::Grow(int64_t count, void* stream) {
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
  if (on_device_ != nullptr) return GrowOnDevice(count, stream);
  AlignedBuffer<float> rows(static_cast<std::size_t>(count) * 2 * static_cast<std::size_t>(pairs_));
  const int64_t kept = count_ * 2 * pairs_;
  if (kept > 0)
    std::memcpy(rows.data(), rows_.data(), static_cast<std::size_t>(kept) * sizeof(float));
  internal::FillRows(frequencies_, first_ + count_, count - count_, precision_, rows.data() + kept);
  rows_ = std::move(rows);
  data_ = rows_.data();
  count_ = count;
}

void FillCosSin(const Frequencies& frequencies, std::span<const int64_t> positions,
                AnglePrecision precision, float* out) {
  CheckFrequencies(frequencies);
  if (precision == AnglePrecision::kExact) return CosSinRows(frequencies).Fill(positions, out);
  for (const int64_t position : positions) CheckPosition(position);
  for (const int64_t position : positions) {
    FillFloat32(frequencies, position, out);
    out += 2 * frequencies.inv_freq.size();
  }
}

CosSinRows::CosSinRows(const Frequencies& frequencies)
    : turns_(std::make_shared<const ExactTurns>(frequencies)) {}

void CosSinRows::Fill(std::span<const int64_t> positions, float* out) const {
  for (const int64_t position : positions) CheckPosition(position);
  if (positions.empty() || turns_->pairs == 0) return;
  ExactRows rows(*turns_, std::min(kFineRows, static_cast<int64_t>(positions.size())));
  ExactRows::Scratch scratch(rows);
  for (const int64_t position : positions) {
    const int64_t fine = position & (kFineRows - 1);
    rows.PrepareFine(fine, fine, scratch);
    rows.Fill(position, 1, scratch, out);
    out += 2 * turns_->pairs;
  }
}

void CosSinRows::Fill(int64_t first, int64_t count, float* out) const {
  CheckPosition(first);
  if (count > kPositionLimit - first) CheckPosition(kPositionLimit);
  FillExact(*turns_, first, count, out);
}

}  // namespace ropewalk
