// The options of the program: one list, so that each means the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ropewalk/linear/linear.h"

namespace ropewalk::cli {

// What the user typed makes no sense: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string model, text, ids, output, per_token, prompt;
  std::string html, dialect;
  std::vector<std::string> methods, rope_scaling, lengths, diff, search, engines;
  std::vector<double> factors;
  std::vector<double> depths = {0.1, 0.3, 0.5, 0.7, 0.9};
  std::string passkey_filler = "builtin";
  std::string trained, protocol = "aligned", angles = "exact", positions = "model", states;
  std::string compute = Name(ComputeType::kFloat32);
  std::optional<int64_t> anchors;
  uint64_t seed = 1;
  int64_t passkey_trials = 5, max_tokens = 100, budget = 12;
  std::optional<bool> bos;
  int threads = 0;             // 0: what OpenMP says, all cores
  bool oversubscribe = false;  // more threads than cores
  bool json = false, dry_run = false, allow_unknown = false, special = false, pieces = false,
       decode = false, no_passkey = false, yes = false;
};

enum class Opt {
  kModel,
  kText,
  kIds,
  kSpecial,
  kMethods,
  kRopeScaling,
  kLengths,
  kFactors,
  kTrained,
  kProtocol,
  kAnchors,
  kSeed,
  kPasskeyTrials,
  kPasskeyFiller,
  kDepths,
  kNoPasskey,
  kAngles,
  kPositions,
  kStates,
  kCompute,
  kBos,
  kThreads,
  kAllowUnknown,
  kJson,
  kDryRun,
  kYes,
  kOutput,
  kSearch,
  kBudget,
  kPerToken,
  kPrompt,
  kMaxTokens,
  kHtml,
  kDiff,
  kDialect,
  kEngines,
  kPieces,
  kDecode
};
void AddOptions(CLI::App& command, Options& options, std::initializer_list<Opt> which);

// "8192", "8k" (1024 each) or "1m" (1024 of those), at most 2^30; UsageError otherwise.
int64_t ParseLength(const std::string& text);

}  // namespace ropewalk::cli
