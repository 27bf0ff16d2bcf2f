// From what the user typed to what eval needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// What the file says and nobody follows, on stderr.
void SayNotHonoured(const ModelConfig& config);
// OpenModel, and SayNotHonoured.
ModelFiles OpenModelFor(const Options& options, bool need_weights);

// OpenModelFor with weights, for commands that compute with the decoder: refuses models that it
// does not run before anything else is asked of them.
ModelFiles OpenRunnable(const Options& options);

// What --compute asks for; says when this CPU gains nothing by it.
ComputeType ComputeOf(const Options& options);
// The model with that.
std::unique_ptr<Decoder> LoadDecoder(const Options& options, const ModelFiles& files);

// The whole file, or standard input for "-".
std::string ReadFile(const std::string& path);
// The same as text, without a byte-order mark; what is odd about its bytes goes to stderr. Error
// where it is not UTF-8.
std::string ReadText(const std::string& path);
// The same for what was given as `bytes`; `name` is for messages.
std::string TextOf(const std::string& bytes, const std::string& name);
std::vector<int32_t> ReadIds(const std::string& path);
// One array of ids, or an array of such arrays; none is empty.
std::vector<std::vector<int32_t>> ReadIdLists(const std::string& path);

// --text or --ids; UsageError when neither or both are given.
TokenText ReadTokenText(const Options& options, const ModelFiles& files);
// Throws Error that tells why there is no tokenizer and what to do.
const Tokenizer& RequireTokenizer(const ModelFiles& files);

bool WantsBos(const Options& options, const ModelFiles& files);

// Those of --methods, each once: kAsShipped is the plan of the file. UsageError for what is neither
// that nor a method.
std::vector<SweepMethod> NamedMethods(const std::vector<std::string>& names,
                                      const PositionPlan& shipped);
// The methods of --methods and --rope-scaling; `defaults` where neither was given.
std::vector<SweepMethod> MethodsOf(const Options& options, const ModelFiles& files,
                                   const std::vector<std::string>& defaults);
// Lengths (sorted), factors, protocol, angles and passkey; methods are left empty. The K of a plain
// `aligned` is settled by SettleProtocol.
SweepSpec SpecOf(const Options& options, const ModelFiles& files);
// Plain `aligned` scores 128 tokens an anchor, or half the shortest length where that is less.
void SettleProtocol(const Options& options, int64_t shortest_length, SweepSpec& spec);

// One method at one length, for the commands that compute a single cell.
SweepTask SingleTask(const Options& options, const ModelFiles& files, const SweepSpec& spec,
                     int64_t length);

// The name to show for a model: its last path component.
std::string ModelName(const std::string& path);

}  // namespace ropewalk::cli
