// The ranks that compute one thing together: threads of a process, or processes that MPI started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ropewalk {

// What a rank knows of the others. All ranks make the same calls in the same order; every function
// throws Error once another rank has failed, where it can know.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string Describe() const = 0;  // "2 ranks of MPI (Open MPI 4.1.4)"

  // A step of the ring: begins to send `out` to the next rank, the first behind the last, and to
  // receive as many bytes of `in` from the previous one. Several may be begun; neither memory may be
  // touched before FinishShifts returns.
  virtual void BeginShift(std::span<const std::byte> out, std::span<std::byte> in) = 0;
  // Lets what was begun go on, where nothing else does: call it between pieces of work.
  virtual void Progress() = 0;
  virtual void FinishShifts() = 0;

  // Small things. The bytes of rank `root` become those of all.
  virtual void Broadcast(std::span<std::byte> bytes, int root) = 0;
  // all [size, mine.size()], by rank; as many bytes of each.
  virtual void GatherAll(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void Barrier() = 0;
  // This rank cannot go on: the others learn it as soon as they can; MPI ends all processes, this one
  // with them, with this exit code.
  virtual void Fail(int code) noexcept = 0;

  // The same for bytes whose number root alone knows, and of different numbers for each rank.
  std::vector<std::byte> BroadcastBytes(std::vector<std::byte> bytes, int root);
  std::vector<std::vector<std::byte>> GatherBytes(std::span<const std::byte> mine);
};

// Calls work(group) for each of `ranks` ranks, each on a thread of its own, whose OpenMP regions have
// `threads` threads. The first exception of a rank ends the others and is thrown.
void RunThreadRanks(int ranks, int threads, const std::function<void(RankGroup&)>& work);

// Whether this build knows MPI (ROPEWALK_MPI).
bool HasMpi();
// Whether an MPI launcher (mpirun, mpiexec, srun) started this process as one of several; `variables`
// looks a variable of the environment up, null: there is none.
bool UnderMpi(const std::function<const char*(const char*)>& variables);
// The processes that an MPI launcher started. Once per process; what it gives ends MPI when it goes.
// Throws Error(kUnsupported) where !HasMpi().
std::unique_ptr<RankGroup> MpiRanks();

}  // namespace ropewalk
