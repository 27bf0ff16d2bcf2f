// The options of a command line. cli/options.cc and cli/options_measured.cc have a row
// for each field.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ropewalk::cli {

// An error of the command line: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct OptionRow;
// An option as typed, with its values ("false" for --no-bos).
struct Given {
  const OptionRow* option = nullptr;
  std::vector<std::string> values;
};

struct Options {
  std::string model, text, ids, output, per_token, prompt, shell, page;
  std::string dialect, type, layout;
  std::string action = "list", atlas = "atlas";  // of atlas
  std::string spans, evaluator, short_context;   // of key tokens
  std::string prompts;                           // of a sweep: where its prompts go
  std::string url, served_model;                 // of verify
  std::string shard;                             // of a sweep
  std::vector<std::string> folders, methods, rope_scaling, lengths, diff, search, engines;
  std::string search_by;
  std::vector<std::string> kv;  // types of the KV cache
  std::vector<double> factors;
  std::vector<double> bases;  // of curves
  std::string passkey_filler = "builtin";
  std::string trained, protocol = "aligned", angles = "exact", positions = "model", states;
  std::string compute = "float32", weights = "auto";
  std::string device, dtype;  // of --engine torch
  std::vector<std::string> tasks;
  std::string haystack, squad, hotpot, english_words;  // files of RULER's tasks
  std::optional<int64_t> anchors;
  uint64_t seed = 1;
  int64_t passkey_trials = 25, max_tokens = 100, prefix = 0, search_trials = 12;
  int64_t questions = 0;
  std::optional<int64_t> samples;
  std::optional<bool> generate, share;
  std::string budget = "1h";
  int64_t head_dim = 0, rotary_dim = 0;  // 0: not given
  int64_t dim = 128;                     // of curves
  int64_t tokens = 64, timeout = 600;
  std::optional<bool> bos;
  int threads = 0;             // 0: what OpenMP says, all cores
  bool oversubscribe = false;  // more threads than cores
  bool json = false, html = false, csv = false, markdown = false;
  bool dry_run = false, allow_unknown = false, special = false, pieces = false, decode = false,
       slurm = false, no_race = false, prompts_only = false, link = false, no_tokenizer = false,
       no_verify = false;

  std::vector<Given> given;  // in the order of the command's row
};

// "8192", "8k" (1024 each) or "1m" (1024 of those), at most 2^30; UsageError otherwise.
int64_t ParseLength(const std::string& text);
// Seconds of "90s", "30m" or "2h"; infinite for "none"; UsageError otherwise.
double ParseBudget(const std::string& text);

}  // namespace ropewalk::cli
