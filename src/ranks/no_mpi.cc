#include "ropewalk/base/error.h"
#include "ropewalk/ranks/rank_group.h"

namespace ropewalk {

bool HasMpi() { return false; }

std::unique_ptr<RankGroup> MpiRanks() {
  throw Error(ErrorCode::kUnsupported,
              "ranks: this build of ropewalk has no MPI; build it with -DROPEWALK_MPI=ON. "
              "A sweep by several processes without MPI: --shard auto");
}

}  // namespace ropewalk
