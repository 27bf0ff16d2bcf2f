// Reads what the options of commands name, and builds the inputs of measurements.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// Warns on stderr about keys of the file without effect.
void SayNotHonoured(const ModelConfig& config);
// OpenModel, and SayNotHonoured.
ModelFiles OpenModelFor(const Options& options, bool need_weights);

// OpenModelFor with weights, for commands that run the decoder; throws Error for models that it
// does not run.
ModelFiles OpenRunnable(const Options& options);
void RequireRunnable(const ModelFiles& files);

// The type of --compute; warns if this CPU gains nothing by it.
ComputeType ComputeOf(const Options& options);
// The form of --weights.
WeightStorage WeightsOf(const Options& options);
// Loads the decoder with both; says where auto leaves weights in the file.
std::unique_ptr<Decoder> LoadDecoder(const Options& options, const ModelFiles& files);

// The whole file, or standard input for "-".
std::string ReadFile(const std::string& path);
// The same as text without a byte-order mark; notes on invalid bytes go to stderr. Throws Error
// where it is not UTF-8.
std::string ReadText(const std::string& path);
// The same for the given bytes; `name` is for messages.
std::string TextOf(const std::string& bytes, const std::string& name);
std::vector<int32_t> ReadIds(const std::string& path);
// One array of ids, or an array of such arrays; none is empty.
std::vector<std::vector<int32_t>> ReadIdLists(const std::string& path);

// --text or --ids; UsageError when neither or both are given.
TokenText ReadTokenText(const Options& options, const ModelFiles& files,
                        std::string* bytes = nullptr);
// Throws Error with the reason if there is no tokenizer.
const Tokenizer& RequireTokenizer(const ModelFiles& files);

// The alpha of --positions: "hierarchical", "hierarchical:0.3"; absent for "model".
std::optional<double> HierarchicalAlphaOf(const Options& options);

bool WantsBos(const Options& options, const ModelFiles& files);

// The methods of --methods without duplicates; kAsShipped is the plan of the file. Throws
// UsageError for unknown names.
std::vector<SweepMethod> NamedMethods(const std::vector<std::string>& names,
                                      const PositionPlan& shipped);
// The methods of --methods and --rope-scaling; `defaults` where neither was given.
std::vector<SweepMethod> MethodsOf(const Options& options, const ModelFiles& files,
                                   const std::vector<std::string>& defaults);
// Lengths (sorted), factors, protocol and angles; methods and tasks are left empty. The K of a plain
// `aligned` is settled by SettleProtocol.
SweepSpec SpecOf(const Options& options, const ModelFiles& files);

// Of an encoder-decoder model its decoder, whose tokens are scored.
const ModelConfig& ScoredConfig(const ModelFiles& files);

// One method at one length, for the commands that compute a single cell.
SweepTask SingleTask(const Options& options, const ModelFiles& files, const SweepSpec& spec,
                     int64_t length);

// The name to show for a model: its last path component.
std::string ModelName(const std::string& path);

}  // namespace ropewalk::cli
