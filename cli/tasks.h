// Tasks from what the command line says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/tasks.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// --seed (RULER's own, 42, where it is not given), --questions, --bos and the files of the tasks,
// which are read here.
TaskSettings TaskSettingsOf(const Options& options, const ModelFiles& files);

// The tasks of these names (MakeTasks), with --samples and --generate.
std::vector<std::shared_ptr<const SampledTask>> TasksOf(const Options& options,
                                                        const std::vector<std::string>& names,
                                                        const ModelFiles& files);

}  // namespace ropewalk::cli
