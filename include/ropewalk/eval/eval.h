// Measurements of a model: perplexity with its protocol, passkey retrieval, and the sweep over
// methods, factors and lengths. Functions from (engine, text) to plain structs; no printing.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk {

// Which tokens of a text are scored, and with how much in front of them.
//   aligned:K  anchors fixed by text, seed and the longest length; at every length each anchor
//              scores the same K tokens with length - K tokens in front (BOS counted in the length)
//   windows    non-overlapping windows, every token but the first scored
//   half       non-overlapping windows of n tokens, of which positions n/2 + 1 .. n - 1 are scored:
//              exactly the tokens that llama.cpp's perplexity tool scores
//   sliding:S  windows that advance by S tokens, of which the last S are scored and of the first
//   all
//              but its first; the last window ends with the text and may be shorter (Press et al.
//              2021, arXiv 2108.12409; Hugging Face's guide to perplexity)
struct Protocol {
  enum class Kind : uint8_t { kAligned, kWindows, kHalf, kSliding };
  Kind kind = Kind::kAligned;
  int64_t scored_per_anchor = 128;  // K, aligned only
  int64_t stride = 0;               // S, sliding only
  int64_t anchors = 8;              // aligned: how many; else: at most so many windows, 0 = all
  uint64_t seed = 1;
  bool bos = false;  // a BOS token stands first in every window

  std::string Name() const;                     // "aligned:128"
  bool CanScore(int64_t length) const;          // a window of so many tokens, BOS counted
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
  double mean_nll = 0;        // nats a token
  double standard_error = 0;  // of mean_nll, clustered by window; NaN for one window
  double perplexity = 0;      // exp(mean_nll)
  double bits_per_byte =
      0;  // total nats / ln 2 / bytes of the scored tokens' text; NaN without text
  std::vector<double> window_nll;  // [windows] mean nll of each
  // Loss by position, when asked for: bucket i holds positions [edges[i], edges[i + 1]). All
  // positions of every window count here, also those that `aligned` does not score.
  std::vector<int64_t> bucket_edges;
  std::vector<double> bucket_nll;
  // Entropy of attention, when asked for: the mean over every layer and head of up to four queries
  // at the end of each window, in nats, and as a share of ln(keys seen); else NaN.
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();
};

// What to measure on: ids of the text and the byte offset of each token in it (empty: unknown).
struct TokenText {
  std::vector<int32_t> ids;
  std::vector<int32_t> token_bytes;  // bytes of text that each id stands for
  std::string hash;                  // of ids
  std::string tokenizer;             // kind, or "ids given"
  std::string tokenizer_hash;        // empty when ids were given
};
// token_bytes sum to text.size().
TokenText TokenizeText(const Tokenizer& tokenizer, std::string_view text,
                       const EncodeOptions& options = {});
TokenText TextOfIds(std::vector<int32_t> ids);

// Called now and then from inside a cell with tokens done and in all; returning false interrupts,
// which surfaces as Interrupted.
using ProgressFn = std::function<bool(int64_t done_tokens, int64_t all_tokens)>;
struct Interrupted {};

struct RunOptions {
  AnglePrecision angles = AnglePrecision::kExact;
  std::optional<int32_t> bos_id;  // needed when a protocol has bos
  bool by_position = false;       // fill bucket_*: the head runs over every position
  bool entropy = false;           // fill entropy and entropy_share
  ProgressFn progress;
};

// What one window holds: ids, and the range of positions that are scored.
struct EvalWindow {
  std::vector<int32_t> ids;  // [length], BOS first where the protocol has one
  int64_t text_begin = 0;    // index into the text of the first id that is no BOS
  int64_t score_begin = 0;   // positions [score_begin, ids.size()) are scored
};
// Pure. Throws Error when the text is too short, saying how many tokens are needed, how many there
// are and which length would fit. `longest_length` (>= length) fixes the anchors.
std::vector<EvalWindow> MakeWindows(const TokenText& text, const Protocol& protocol, int64_t length,
                                    int64_t longest_length, std::optional<int32_t> bos_id);

// Errors are those of MakeWindows and ScoringEngine::Score.
PerplexityResult MeasurePerplexity(const ScoringEngine& engine, const PositionPlan& plan,
                                   const TokenText& text, const Protocol& protocol, int64_t length,
                                   int64_t longest_length, const RunOptions& options);

// The words of a passkey prompt; models/passkey.json holds the same (a test compares them).
struct PasskeyTemplate {
  std::string format, needle, question, answer, default_filler;  // "{key}" stands for the digits
  int64_t digits = 0;
};
const PasskeyTemplate& BuiltinPasskey();

struct PasskeyOptions {
  int64_t trials = 5;  // per depth
  bool bos = false;    // a BOS token stands first
  std::vector<double> depths = {0.1, 0.3, 0.5, 0.7,
                                0.9};  // 0: needle first, 1: next to the question
  uint64_t seed = 1;
};
struct PasskeyTrial {
  double depth = 0;
  std::string key;  // the digits
  int64_t prompt_tokens = 0;
  int64_t needle_token = 0;  // where the needle begins
  bool exact = false;        // every digit had the highest logit, teacher-forced
  float key_nll = 0;         // nats, sum over the key's tokens
};
struct PasskeyResult {
  std::vector<PasskeyTrial> trials;
  double accuracy = 0;
};
struct PasskeyPrompt {
  std::vector<int32_t> ids;  // [length]: BOS, filler, needle, filler, question, answer
  int64_t needle_begin = 0;
  int64_t answer_begin = 0;  // the last ids.size() - answer_begin tokens are the answer
};
// Pieces are encoded one by one and joined, so the prompt has exactly `length` tokens whatever the
// tokenizer; filler begins at filler[filler_begin] and wraps around. The needle stands behind
// round(depth * filler tokens) filler tokens. Throws Error when `length` is too short, saying how
// much is needed.
PasskeyPrompt MakePasskeyPrompt(const Tokenizer& tokenizer, std::span<const int32_t> filler,
                                int64_t filler_begin, int64_t length, double depth,
                                const std::string& key, std::optional<int32_t> bos_id);
// The shortest prompt (no filler) with any key, in tokens.
int64_t MinPasskeyTokens(const Tokenizer& tokenizer, bool bos);

// Keys, filler and depths follow from the options and `length` alone, so every method sees the same
// prompts. An empty `filler` is the template's default filler. Prompts with the same filler share
// what stands in front of the needle, which an engine computes once.
PasskeyResult MeasurePasskey(const ScoringEngine& engine, const PositionPlan& plan,
                             const Tokenizer& tokenizer, std::span<const int32_t> filler,
                             int64_t length, const PasskeyOptions& passkey,
                             const RunOptions& options);

// ---- The sweep --------------------------------------------------------------------------------

// What a sweep compares: a method with a factor for each target length, or a plan that has its own.
using SweepMethod = std::variant<PositionMethod, FixedPlan>;
const std::string& NameOf(const SweepMethod& method);

struct SweepSpec {
  std::vector<SweepMethod> methods;
  std::vector<int64_t> lengths;  // tokens, ascending
  std::vector<double> factors;   // empty: length / trained for every length beyond it
  int64_t trained_length = 0;
  Protocol protocol;
  bool perplexity = true;
  bool passkey = true;
  PasskeyOptions passkey_options;
  bool passkey_text_filler = false;  // filler is the running text, not the template's own
  AnglePrecision angles = AnglePrecision::kExact;
  std::optional<int32_t> bos_id;
};

// One finished (method, factor, length). This is the row of results.jsonl: ToJson and ReadResults
// in ropewalk/eval/results.h, the schema in docs/results-format.md. A number that was not measured,
// or that the model has not, is NaN here and null there.
struct Cell {
  std::string method;     // its name: "yarn"
  double factor = 1;      // 1 for none
  int64_t length = 0;     // tokens
  std::string scaling;    // Describe(scaling) or the dictionary given
  std::string plan_hash;  // resolved at `length`
  std::string
      shared_with;  // Identity() of the cell with the same plan that was computed; else empty
  // The rotation of the first rotating layer (without a local base), resolved at `length` (for the frequency picture).
  std::vector<double> inv_freq;  // [pairs], radians per token
  double amplitude = std::numeric_limits<double>::quiet_NaN();
  double rope_base = std::numeric_limits<double>::quiet_NaN();
  double local_base = std::numeric_limits<double>::quiet_NaN();  // SettingsTarget::local_base
  int64_t rotary_dim = 0;

  double mean_nll = std::numeric_limits<double>::quiet_NaN();
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  double perplexity = std::numeric_limits<double>::quiet_NaN();
  double bits_per_byte = std::numeric_limits<double>::quiet_NaN();
  int64_t windows = 0, scored_tokens = 0;
  std::vector<double> window_nll;  // mean nll of each window, for paired differences
  // Loss by position: bucket i holds positions [edge[i], edge[i+1]); windows protocols and the
  // longest length of aligned, where every position is scored once for it.
  std::vector<int64_t> bucket_edges;
  std::vector<double> bucket_nll;
  // Of attention, as in PerplexityResult.
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();

  bool has_passkey = false;
  double passkey_accuracy = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> passkey_depths, passkey_by_depth;
  int64_t passkey_trials = 0;

  std::string model_hash, text_hash, tokenizer_hash, tokenizer, protocol, bos, compute, angles,
      passkey_protocol, version;
  int64_t trained_length = 0;
  int64_t anchors = 0;         // as asked for; `windows` says how many there were
  int64_t longest_length = 0;  // of the sweep: it fixes the anchors
  int threads = 0;
  uint64_t seed = 0;
  double seconds = 0;

  // The method of the name; none for as-shipped and for dictionaries, whose names say less.
  std::optional<PositionMethod> named() const { return PositionMethod::TryParse(method); }
  bool unscaled() const { return method == PositionMethod().name(); }
  bool as_shipped() const { return method == kAsShipped; }
  std::string Identity() const;  // hash over everything that decides the numbers
};

struct SweepTask {
  std::string method;     // its name
  bool unscaled = false;  // the method is none
  double factor = 1;
  int64_t length = 0;
  PositionPlan plan;
  std::string scaling;
  std::string plan_hash;
  int64_t shares = -1;  // index of the earlier task with the same length and plan, or -1
  bool added = false;   // not asked for: the rules of the recommendation need it
};
// The plan of one cell. `factor` does not matter for fixed methods and none.
SweepTask MakeTask(const SweepMethod& method, double factor, int64_t length, int64_t trained_length,
                   const PositionPlan& model_plan);
// The cells of a spec in the order they run (short before long): one for each method at each
// length, equal (method, factor, length) once.
//   none, fixed      as they are
//   other methods    beyond the trained length with factor length / trained; up to it with the
//                    largest such factor, which shows the most that leaving it on costs; with
//                    `factors`, each factor at each length instead
// Where a length lies beyond the trained one, none at the trained length is added when it was not
// asked for: what is usable is judged by it.
std::vector<SweepTask> PlanSweep(const SweepSpec& spec, const PositionPlan& model_plan);
// Whether a length lies beyond the trained one, and the trained one can be measured to judge it by.
bool JudgesBeyondTrained(const SweepSpec& spec);
// `tasks` and, behind them, those that say what the settings recommended for `cells` cost at the
// trained length, where they are not among `tasks`: at most one for each length beyond it.
std::vector<SweepTask> AddCosts(std::vector<SweepTask> tasks, const SweepSpec& spec,
                                const PositionPlan& model_plan, const std::vector<Cell>& cells);

// What the user should do at one target length.
struct Recommendation {
  int64_t length = 0;
  bool judged = true;  // false: no scaling at the trained length was not measured
  std::string method;  // empty: none is good enough, or not judged
  double factor = 1;
  double perplexity = 0, passkey_accuracy = 0;
  bool lead_outside_noise = false;
  std::string runner_up;
  // Nats a token at the trained length against no scaling; NaN where that was not measured, and for
  // no scaling itself.
  double trained_length_cost = std::numeric_limits<double>::quiet_NaN();
  int64_t longest_usable = 0;  // of this method over all lengths, by the stated rule
  std::string text;            // one paragraph in plain words
};
// One for each length beyond the trained one; none where that is unknown. Usable: perplexity at
// most 1.25 times that of no scaling at the trained length, and passkey (where measured) not
// significantly below 0.5. Where no scaling fails that at the shortest or the trained length
// already, passkey decides nothing.
std::vector<Recommendation> Recommend(const std::vector<Cell>& cells);

// What to paste into each engine for a row of a sweep, at `target_length` tokens. Named methods are
// rebuilt from name and factor; "as-shipped" needs no setting but the length; a dictionary given by
// the user is repeated.
std::vector<EngineSetting> SettingsFor(const Cell& cell, int64_t target_length);

}  // namespace ropewalk
