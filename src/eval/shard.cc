// Which shard of a sweep a process is, as what started it says.
#include "ropewalk/eval/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

constexpr int64_t kMost = 1000000;

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "shard: " + why);
}

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

// The number of a variable that is set.
std::optional<int64_t> Variable(const Environment& environment, const char* name) {
  const char* text = environment(name);
  if (text == nullptr) return {};
  const std::optional<int64_t> value = NumberOf(text);
  if (!value || *value < 0 || *value > kMost) {
    Refuse(fmt::format("{} is '{}', not a number from 0 to {}", name, text, kMost));
  }
  return value;
}

Shard Checked(int64_t index, int64_t count, const std::string& from) {
  if (index < 1 || count < 1 || index > count || count > kMost) {
    Refuse(
        fmt::format("expected a number from 1 to the number of shards, such as 3/16, got {}/{}{}",
                    index, count, from));
  }
  return {.index = index, .count = count};
}

// Rank from 0, and how many there are.
struct Launcher {
  const char* rank;
  const char* size;
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"RANK", "WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};

std::optional<Shard> RankOf(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int64_t> rank = Variable(environment, launcher.rank);
    const std::optional<int64_t> size = Variable(environment, launcher.size);
    if (!rank && !size) continue;
    if (!rank || !size) {
      // Within a batch script SLURM_NTASKS may stand alone.
      if (std::string_view(launcher.rank) == "SLURM_PROCID") continue;
      Refuse(fmt::format("auto: {} is set and {} is not", rank ? launcher.rank : launcher.size,
                         rank ? launcher.size : launcher.rank));
    }
    return Checked(*rank + 1, *size, fmt::format(" by {} and {}", launcher.rank, launcher.size));
  }
  return {};
}

std::optional<Shard> ArrayTaskOf(const Environment& environment) {
  const std::optional<int64_t> id = Variable(environment, "SLURM_ARRAY_TASK_ID");
  if (!id) return {};
  const auto least = Variable(environment, "SLURM_ARRAY_TASK_MIN");
  const auto most = Variable(environment, "SLURM_ARRAY_TASK_MAX");
  if (!least || !most) {
    Refuse("auto: SLURM_ARRAY_TASK_ID is set, SLURM_ARRAY_TASK_MIN and _MAX are not");
  }
  const int64_t step =
      std::max<int64_t>(1, Variable(environment, "SLURM_ARRAY_TASK_STEP").value_or(1));
  return Checked((*id - *least) / step + 1, (*most - *least) / step + 1,
                 " by SLURM_ARRAY_TASK_ID, _MIN and _MAX");
}

Shard FromLauncher(const Environment& environment) {
  const std::optional<Shard> rank = RankOf(environment), task = ArrayTaskOf(environment);
  if (!rank && !task) {
    Refuse(
        "auto: nothing says which shard this is. It looks at SLURM_ARRAY_TASK_ID, at "
        "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, PMI_RANK and PMI_SIZE, RANK and "
        "WORLD_SIZE, SLURM_PROCID and SLURM_NTASKS, which sbatch --array, mpirun, torchrun and "
        "srun set; by hand: 3/16");
  }
  if (!task) return *rank;
  const Shard of_task = rank.value_or(Shard());
  return Checked((task->index - 1) * of_task.count + of_task.index, task->count * of_task.count,
                 "");
}

}  // namespace

Shard ParseShard(const std::string& text, const Environment& environment) {
  if (text == "auto") return FromLauncher(environment);
  const size_t slash = std::min(text.find('/'), text.size());
  const auto index = NumberOf(std::string_view(text).substr(0, slash));
  const auto count = NumberOf(std::string_view(text).substr(std::min(slash + 1, text.size())));
  if (slash == text.size() || !index || !count) {
    Refuse("expected auto or a number of a count, such as 3/16, got '" + text + "'");
  }
  return Checked(*index, *count, "");
}

int ThreadsOfRank(int cores, const Environment& environment) {
  const auto most = static_cast<int64_t>(std::max(1, cores));
  if (const auto given = Variable(environment, "SLURM_CPUS_PER_TASK"); given.value_or(0) > 0) {
    return static_cast<int>(std::min(most, *given));
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE",
                           "SLURM_NTASKS_PER_NODE"}) {
    const auto beside = Variable(environment, name);
    if (beside.value_or(0) > 0) return static_cast<int>(std::max<int64_t>(1, most / *beside));
  }
  return static_cast<int>(most);
}

}  // namespace ropewalk
