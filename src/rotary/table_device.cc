#include "src/rotary/table_device.h"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

using internal::DeviceBuffer;

int64_t Bytes(int64_t rows, int64_t pairs) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, 2 * pairs * static_cast<int64_t>(sizeof(float)), &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

void CheckCurrent(const internal::TableOnDevice& table) {
  const int current = internal::CurrentDevice();
  if (current == table.device) return;
  throw Error(ErrorCode::kInvalidArgument,
              "table: it lies on GPU " + std::to_string(table.device) +
                  ", and the current one is " + std::to_string(current) +
                  "; make that current (cudaSetDevice), or build one here");
}

template <class T>
DeviceBuffer Upload(const std::vector<T>& items, void* stream) {
  DeviceBuffer buffer(static_cast<int64_t>(items.size() * sizeof(T)));
  internal::CopyToDevice(buffer.data(), items.data(), buffer.bytes(), stream);
  return buffer;
}

}  // namespace

const double* internal::DeviceLogDecay(const CosSinTable& table) {
  const TableOnDevice* there = TableOnDevice::Of(table);
  if (there == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "table: it lies in memory of the CPU, and the tensors on a GPU; build it with "
                "Device::kCuda, or use its OnDevice()");
  }
  CheckCurrent(*there);
  return static_cast<const double*>(there->log_decay.data());
}

void CosSinTable::MoveToDevice(void* stream) {
  auto moved = std::make_shared<internal::TableOnDevice>();
  moved->device = internal::CurrentDevice();
  moved->log_decay = Upload(frequencies_.log_decay, stream);
  moved->rows = DeviceBuffer(Bytes(count_, pairs_));
  internal::CopyToDevice(moved->rows.data(), data_, moved->rows.bytes(), stream);
  on_device_ = std::move(moved);
  data_ = static_cast<const float*>(on_device_->rows.data());
}

CosSinTable CosSinTable::OnDevice(void* stream) const {
  if (on_device_ != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "table: it lies on a GPU already");
  }
  CosSinTable table;
  table.frequencies_ = frequencies_;
  table.precision_ = precision_;
  table.first_ = first_;
  table.count_ = count_;
  table.pairs_ = pairs_;
  table.given_ = given_;
  table.data_ = data_;
  table.MoveToDevice(stream);
  return table;
}

void CosSinTable::GrowOnDevice(int64_t count, void* stream) {
  CheckCurrent(*on_device_);
  DeviceBuffer rows(Bytes(count, pairs_));
  const int64_t kept = Bytes(count_, pairs_);
  internal::CopyOnDevice(rows.data(), data_, kept, stream);
  float* const added =
      static_cast<float*>(rows.data()) + kept / static_cast<int64_t>(sizeof(float));
  if (precision_ == AnglePrecision::kExact) {
    std::vector<internal::Uint128> turns;
    for (const DoubleDouble& f : frequencies_.inv_freq) turns.push_back(internal::ToTurns(f));
    const DeviceBuffer turns_there = Upload(turns, stream);
    internal::LaunchFillTable({.turns = static_cast<const internal::Uint128*>(turns_there.data()),
                               .pairs = pairs_,
                               .amplitude = frequencies_.amplitude,
                               .first = first_ + count_,
                               .count = count - count_,
                               .rows = added},
                              stream);
    internal::WaitForStream(stream);
  } else {
    AlignedBuffer<float> made(static_cast<std::size_t>((count - count_) * 2 * pairs_));
    internal::FillRows(frequencies_, first_ + count_, count - count_, precision_, made.data());
    internal::CopyToDevice(added, made.data(), rows.bytes() - kept, stream);
  }
  on_device_->rows = std::move(rows);
  data_ = static_cast<const float*>(on_device_->rows.data());
  count_ = count;
}

}  // namespace ropewalk
