// Several processes, on one machine or many, that measure one sweep together in a folder which they
// share. docs/many-machines.md describes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ropewalk {

// One of these processes. Its number names its files and says where it begins; what it measures is
// settled as the sweep goes, by leases on parts of the work (files in FOLDER/leases), so that none of
// the others needs to run.
struct Shard {
  int64_t index = 1, count = 1;  // 1 <= index <= count
  // A process renews its leases so often. One whose renewals another process has not seen for
  // `stale_seconds` of its own clock is taken for dead, and what it had leased is measured by others.
  double beat_seconds = 5, stale_seconds = 60;

  std::string Name() const { return std::to_string(index) + "/" + std::to_string(count); }
};

// Variables of the environment by name; null: not set.
using Environment = std::function<const char*(const char* name)>;

// "3/16", or "auto": from what started the process. The rank is that of Open MPI
// (OMPI_COMM_WORLD_RANK and _SIZE), of other MPI (PMI_RANK and PMI_SIZE), of torchrun (RANK and
// WORLD_SIZE) or of srun (SLURM_PROCID and SLURM_NTASKS), the first of these that is set, since mpirun
// and torchrun are started within the others; in a job array of SLURM every task has all of its ranks
// (SLURM_ARRAY_TASK_ID, _MIN, _MAX and _STEP). Throws Error(kInvalidArgument) for anything else, for a
// number that is not from 1 to the count, and where "auto" finds none of these.
Shard ParseShard(const std::string& text, const Environment& environment);

// How many threads a process that was started so should use by itself, of the `cores` that it may:
// SLURM_CPUS_PER_TASK, else its share beside the other processes of the job on this machine, where
// the launcher says how many there are (OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS,
// LOCAL_WORLD_SIZE, SLURM_NTASKS_PER_NODE); at least 1.
int ThreadsOfRank(int cores, const Environment& environment);

// Called now and then while another process is waited for, with what is known of it; false: the wait
// throws Interrupted.
using WaitFn = std::function<bool(const std::string& holder)>;

// Runs `work` while no other shard of the folder runs work of this name, so that what the first one
// finds the others read. Waits for them. Throws Error(kIo) where FOLDER/leases cannot be written, and
// what `work` throws.
void OneAfterTheOther(const std::string& folder, const Shard& shard, const std::string& name,
                      const WaitFn& waiting, const std::function<void()>& work);

}  // namespace ropewalk
