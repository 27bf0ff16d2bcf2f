// Tasks from what the command line says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/tasks.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// The tasks of these names (MakeTasks), with --samples, --passkey-trials and --generate. `text`, that
// of --text, is what --passkey-filler text hides the passkeys in; null: there is none.
std::vector<std::shared_ptr<const SampledTask>> TasksOf(const Options& options,
                                                        const std::vector<std::string>& names,
                                                        const ModelFiles& files,
                                                        const TokenText* text);

}  // namespace ropewalk::cli
