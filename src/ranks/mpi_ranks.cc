// Ranks that an MPI launcher started. The C interface alone, which Open MPI and MPICH share.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/ranks/rank_group.h"

namespace ropewalk {
namespace {

// Counts of MPI are int; pieces of this size also let a transfer go on while others are on their way.
constexpr size_t kPiece = size_t{4} << 20;
constexpr int kTag = 1;

// Errors of MPI end the job with its own message (MPI_ERRORS_ARE_FATAL), so codes need no look.
class MpiRank final : public RankGroup {
 public:
  MpiRank() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;
  ~MpiRank() override {
    if (!failed_) MPI_Finalize();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, static_cast<size_t>(length));
    return std::to_string(size_) + " ranks of MPI (" +
           version.substr(0, version.find_first_of(",\n")) + ")";
  }

  void BeginShift(std::span<const std::byte> out, std::span<std::byte> in) override {
    const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
    for (size_t at = 0; at < in.size(); at += kPiece) {
      const int count = static_cast<int>(std::min(kPiece, in.size() - at));
      MPI_Irecv(in.data() + at, count, MPI_BYTE, previous, kTag, MPI_COMM_WORLD, &NewRequest());
    }
    for (size_t at = 0; at < out.size(); at += kPiece) {
      const int count = static_cast<int>(std::min(kPiece, out.size() - at));
      MPI_Isend(out.data() + at, count, MPI_BYTE, next, kTag, MPI_COMM_WORLD, &NewRequest());
    }
  }
  void Progress() override {
    if (requests_.empty()) return;
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  }
  void FinishShifts() override {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    requests_.clear();
  }

  void Broadcast(std::span<std::byte> bytes, int root) override {
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const int count = static_cast<int>(std::min(kPiece, bytes.size() - at));
      MPI_Bcast(bytes.data() + at, count, MPI_BYTE, root, MPI_COMM_WORLD);
    }
  }
  void GatherAll(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::vector<std::byte> pieces(std::min(kPiece, mine.size()) * static_cast<size_t>(size_));
    for (size_t at = 0; at < mine.size(); at += kPiece) {
      const size_t count = std::min(kPiece, mine.size() - at);
      MPI_Allgather(mine.data() + at, static_cast<int>(count), MPI_BYTE, pieces.data(),
                    static_cast<int>(count), MPI_BYTE, MPI_COMM_WORLD);
      for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
        std::memcpy(all.data() + r * mine.size() + at, pieces.data() + r * count, count);
      }
    }
  }
  void Barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void Fail(int code) noexcept override {
    failed_ = true;
    MPI_Abort(MPI_COMM_WORLD, code);
  }

 private:
  MPI_Request& NewRequest() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  int rank_ = 0, size_ = 1;
  bool failed_ = false;
  std::vector<MPI_Request> requests_;
};

}  // namespace

bool HasMpi() { return true; }

std::unique_ptr<RankGroup> MpiRanks() {
  int already = 0;
  MPI_Initialized(&already);
  if (already != 0) {
    throw Error(ErrorCode::kInvalidArgument, "MpiRanks: MPI has begun already");
  }
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(ErrorCode::kUnsupported, "MpiRanks: this MPI allows no threads beside it");
  }
  return std::make_unique<MpiRank>();
}

}  // namespace ropewalk
