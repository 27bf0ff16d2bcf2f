// Measurements of a model: perplexity with its protocol, and the sweep over methods, factors and
// lengths, with tasks (ropewalk/eval/task.h). Functions from (engine, text) to plain structs; no printing.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/race.h"
#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/eval/task_result.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk {

// Which tokens of a text are scored, and with how much context before them.
//   aligned:K  anchors fixed by text, seed and the longest length; at every length each anchor
//              scores the same K tokens with length - K tokens before them (a BOS counts as one)
//   windows    non-overlapping windows, of which every token but the first is scored
//   half       non-overlapping windows of n tokens, of which positions n/2 + 1 .. n - 1 are scored:
//              exactly the tokens that llama.cpp's perplexity tool scores
//   sliding:S  windows that advance by S tokens. Of the first window every token but the first is
//              scored, of the others the last S; the last window ends with the text and may be
//              shorter (Press et al. 2021, arXiv 2108.12409; Hugging Face's guide to perplexity)
struct Protocol {
  enum class Kind : uint8_t { kAligned, kWindows, kHalf, kSliding };
  Kind kind = Kind::kAligned;
  int64_t scored_per_anchor = 128;  // K, aligned only
  int64_t stride = 0;               // S, sliding only
  int64_t anchors = 8;  // aligned: number, 0 = to be settled; else: most windows, 0 = all
  uint64_t seed = 1;
  bool bos = false;  // every window begins with a BOS token
  // The first tokens of each window, BOS among them, of which none is scored; 0: as above.
  int64_t prefix = 0;
  bool prefix_encoded = false;  // they go through an encoder (EncoderDecoderEngine)

  std::string Name() const;                     // "aligned:128", "windows, prefix 64"
  bool CanScore(int64_t length) const;          // whether windows of this length score any token
  static Protocol Parse(const std::string& s);  // Error lists the forms
};

// One scored token. `nll` in nats.
struct ScoredToken {
  int32_t window = 0;    // index of anchor or window
  int32_t position = 0;  // within its window, BOS counted
  int32_t id = 0;
  float nll = 0;
};

struct PerplexityResult {
  std::vector<ScoredToken> tokens;  // by window, then position
  int64_t windows = 0;
  double mean_nll = 0;        // nats per token
  double standard_error = 0;  // of mean_nll, clustered by window; NaN for one window
  double perplexity = 0;      // exp(mean_nll)
  double bits_per_byte =
      0;  // total nats / ln 2 / bytes of the scored tokens' text; NaN without text
  std::vector<double> window_nll;  // [windows] mean nll of each
  // Loss by position (RunOptions::by_position): bucket i holds positions [edges[i], edges[i + 1]).
  // All positions of every window count, also those that `aligned` does not score.
  std::vector<int64_t> bucket_edges;
  std::vector<double> bucket_nll;
  // Entropy of attention (RunOptions::entropy): the mean over all layers, all heads and up to four
  // queries at the end of each window, in nats, and relative to ln(unmasked keys); else NaN.
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();
};

// A tokenised text to measure on.
struct TokenText {
  std::vector<int32_t> ids;
  std::vector<int32_t> token_bytes;  // bytes of text of each id; empty: unknown
  std::string hash;                  // of ids
  std::string tokenizer;             // kind, or "ids given"
  std::string tokenizer_hash;        // empty when ids were given
};
// token_bytes sum to text.size().
TokenText TokenizeText(const Tokenizer& tokenizer, std::string_view text,
                       const EncodeOptions& options = {});
TokenText TextOfIds(std::vector<int32_t> ids);

// Called now and then during a measurement with the number of tokens done and in all. If it returns
// false, the measurement throws Interrupted.
using ProgressFn = std::function<bool(int64_t done_tokens, int64_t all_tokens)>;
struct Interrupted {};

struct RunOptions {
  AnglePrecision angles = AnglePrecision::kExact;
  KvType kv = KvType::kF32;       // of the KV cache
  std::optional<int32_t> bos_id;  // required by protocols with bos
  bool by_position = false;       // fill bucket_*: computes logits at every position
  bool entropy = false;           // fill entropy and entropy_share
  // Indices of tokens of the text, ascending, whose losses a sweep reports by themselves too.
  std::span<const int64_t> key_tokens;
  ProgressFn progress;
};

// The ids of one window, and the range of positions that are scored.
struct EvalWindow {
  std::vector<int32_t> ids;  // [length], BOS first where the protocol has one
  int64_t text_begin = 0;    // index in the text of the first id after the BOS
  int64_t score_begin = 0;   // positions [score_begin, ids.size()) are scored
};
// A pure function. `longest_length` (>= length) fixes the anchors. Throws Error for a text that is
// too short, with the number of tokens required, the number given and a length that would fit.
std::vector<EvalWindow> MakeWindows(const TokenText& text, const Protocol& protocol, int64_t length,
                                    int64_t longest_length, std::optional<int32_t> bos_id);

// Throws Error as MakeWindows and ScoringEngine::Score do.
PerplexityResult MeasurePerplexity(const ScoringEngine& engine, const PositionPlan& plan,
                                   const TokenText& text, const Protocol& protocol, int64_t length,
                                   int64_t longest_length, const RunOptions& options);

// ---- The sweep --------------------------------------------------------------------------------

// What a sweep compares: a method with a factor for each target length, or a plan that has its own.
using SweepMethod = std::variant<PositionMethod, FixedPlan>;
const std::string& NameOf(const SweepMethod& method);

class SampledTask;  // ropewalk/eval/task.h

// The key tokens of a text (ropewalk/eval/key_tokens.h) as the task "key-tokens" of a sweep: those
// among the tokens that its windows score, whose losses perplexity has measured already.
struct KeyTokenTask {
  std::vector<int64_t> tokens = {};  // indices in the text, ascending
  std::string protocol = {};         // how they were found, and by whom
  std::string data_hash = {};        // of their spans
};

struct SweepSpec {
  std::vector<SweepMethod> methods;
  std::vector<int64_t> lengths;  // tokens, ascending
  std::vector<double> factors;   // empty: length / trained_length for every longer length
  int64_t trained_length = 0;
  Protocol protocol;
  bool perplexity = true;
  // Passkey and others, each at every length that holds a prompt of it.
  std::vector<std::shared_ptr<const SampledTask>> tasks;
  std::optional<KeyTokenTask> key_tokens;  // with the protocol aligned alone
  // Tasks that can be hidden in the windows of `aligned` (Task::HideIn) are asked behind these, at
  // the lengths that hold them; elsewhere and without, behind prompts of their own.
  bool share = true;
  // Methods that are clearly behind another leave a length early; absent: all are measured whole.
  std::optional<RaceRule> race;
  AnglePrecision angles = AnglePrecision::kExact;
  // Types of the KV cache: each method with each factor at each length is measured with every one.
  // Methods race within one type, and what is recommended comes from one (RecommendedKv).
  std::vector<KvType> kv = {KvType::kF32};
  std::optional<int32_t> bos_id;
};

// Why a method left the race of a length (ropewalk/eval/race.h).
struct RaceExit {
  int64_t round = 0;         // from 1
  std::string against = {};  // the method that it was behind; empty: its loss was not finite
  double against_factor = 1;
  double difference = std::numeric_limits<double>::quiet_NaN();  // nats per token, over its windows
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  // Lower confidence bound of the difference, which holds at every round at once.
  double at_least = std::numeric_limits<double>::quiet_NaN();
};

// The result of one (method, factor, length, type of KV cache): a row of results.jsonl. ToJson and ReadResults are in
// ropewalk/eval/results.h, the schema in docs/results-format.md. A number that was not measured or
// that the model does not have is NaN here and null there.
struct Cell {
  std::string method;        // its name: "yarn"
  double factor = 1;         // 1 for none
  int64_t length = 0;        // tokens
  std::string scaling;       // Describe(scaling), or the dictionary given
  std::string plan_hash;     // resolved at `length`
  KvType kv = KvType::kF32;  // of the KV cache
  // Whether keys were rotated when the cache rounded them: "rotated", "unrotated" under a distance
  // map, "both" where only some of the layers that rotate have one. Empty for f32.
  std::string kv_keys;
  // Identity() of the computed cell with the same plan, whose results this one has; else empty.
  std::string shared_with;
  // The rotation of the first rotating layer without a local base, resolved at `length`.
  std::vector<double> inv_freq;  // [pairs], radians per token
  double amplitude = std::numeric_limits<double>::quiet_NaN();
  double rope_base = std::numeric_limits<double>::quiet_NaN();
  double local_base = std::numeric_limits<double>::quiet_NaN();  // SettingsTarget::local_base
  SettingPlace setting_place = {};                               // PositionPlan::place
  int64_t rotary_dim = 0;

  double mean_nll = std::numeric_limits<double>::quiet_NaN();
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  double perplexity = std::numeric_limits<double>::quiet_NaN();
  double bits_per_byte = std::numeric_limits<double>::quiet_NaN();
  int64_t windows = 0, scored_tokens = 0;
  std::vector<double> window_nll;  // mean nll of each window, for paired differences
  // Loss by position: bucket i holds positions [edges[i], edges[i + 1]). For protocols of windows
  // at every length, for aligned at the longest.
  std::vector<int64_t> bucket_edges;
  std::vector<double> bucket_nll;
  // Of attention, as in PerplexityResult.
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();

  std::vector<TaskResult> tasks;  // of the tasks that the length holds a prompt of
  // Set where the method left the race of its length: it has the windows up to then, and no tasks
  // where that was the first round.
  std::optional<RaceExit> race_exit;
  bool unfinished = false;  // a budget ended before all windows were measured; the folder goes on

  std::string model_hash, text_hash, tokenizer_hash, tokenizer, protocol, bos, compute, angles,
      version;
  std::string tasks_protocol;  // of `tasks`, with their data and numbers of prompts; may be empty
  int64_t trained_length = 0;
  int64_t anchors = 0;         // as requested; `windows` is the number measured
  int64_t longest_length = 0;  // of the sweep; it fixes the anchors
  int threads = 0;
  uint64_t seed = 0;
  double seconds = 0;
  // In files of shards, whose rows are read together: its place among the cells of one length. -1: that
  // in its file.
  int64_t place = -1;

  // The method with this name; absent for as-shipped and for dictionaries.
  std::optional<PositionMethod> named() const { return PositionMethod::TryParse(method); }
  bool unscaled() const { return method == PositionMethod().name(); }
  bool as_shipped() const { return method == kAsShipped; }
  std::string Identity() const;  // hash of everything that the results depend on
};

struct SweepTask {
  std::string method;     // its name
  bool unscaled = false;  // the method is none
  double factor = 1;
  int64_t length = 0;
  KvType kv = KvType::kF32;
  PositionPlan plan;
  std::string scaling;
  std::string plan_hash;
  int64_t shares = -1;  // index of the earlier task with the same length, KV type and plan, or -1
  bool added = false;   // not requested, but needed for the recommendations
};
// The task of one cell. `factor` has no effect on fixed methods and "none".
SweepTask MakeTask(const SweepMethod& method, double factor, int64_t length, int64_t trained_length,
                   const PositionPlan& model_plan);
// The cells of a spec in the order in which they run (short lengths first, at each one KV type after
// the other): one for each method at each length with each KV type, without duplicates.
//   none, fixed      unchanged
//   other methods    beyond the trained length with factor length / trained_length; up to it with
//                    the largest of these factors, which shows its largest cost at short lengths.
//                    With `factors`, each factor at each length instead
// If a length exceeds the trained one, "none" at the trained length is added where it is missing:
// usability is judged relative to it.
std::vector<SweepTask> PlanSweep(const SweepSpec& spec, const PositionPlan& model_plan);
// Whether a length exceeds the trained one, and "none" can be measured at the trained length.
bool JudgesBeyondTrained(const SweepSpec& spec);
// Cells that AddCosts may add to `tasks`: for each length beyond the trained one, a setting of that
// length at the trained one, where no task measures that already.
std::vector<SweepTask> PossibleCosts(const std::vector<SweepTask>& tasks, const SweepSpec& spec);
// `tasks`, followed by those that are missing to measure the cost at the trained length of the
// settings recommended for `cells`: at most one for each length beyond it.
std::vector<SweepTask> AddCosts(std::vector<SweepTask> tasks, const SweepSpec& spec,
                                const PositionPlan& model_plan, const std::vector<Cell>& cells);

// The settings of each engine for a row of a sweep, at `target_length` tokens. Named methods are
// rebuilt from name and factor; "as-shipped" needs only the length; a dictionary given by the user
// is repeated as it is. `family`: of the model, as the header of a sweep names it; engines do not read
// the family ropewalk, and its own config.json takes their place.
std::vector<EngineSetting> SettingsFor(const Cell& cell, int64_t target_length,
                                       const std::string& family = {});

}  // namespace ropewalk
