// Key tokens: those of a text that its far context predicts and its near context does not, and the
// loss of these alone, LongPPL (Fang et al. 2024, arXiv 2410.23771, sections 3.1 and 3.2).
//
// An evaluator, a model within its trained length, gives each token L_full, its loss behind all of
// its document, and L_short, its loss behind about K tokens. Both are nats.
//   LSD = L_short - L_full    long-short difference: what the far context is worth
//   LCL = -L_full             long-context likelihood: ln p of the token
//   key token                 LSD > 2 and LCL > -2, both strictly
//   LongPPL                   exp of the mean loss of the key tokens
// The key tokens are fixed once for a text, as spans of it, and never chosen by what is measured
// with them; a model with another tokenizer has its own tokens inside the same spans.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/eval/cost.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk {

// How key tokens are found. The text is cut from its beginning into documents of `document` tokens,
// of which the last may be shorter. For s = 0, step, 2 step, ... < n - K the tokens t of a document
// of n from s + K on, `step` of them, have L_short behind the tokens from s on: 4096 to 5119 of them
// by the defaults. What stands before K + step has no shorter context than all, and is never key.
struct KeyTokenSettings {
  int64_t document = 8192;       // tokens, BOS included; at most the evaluator's trained length
  int64_t short_context = 4096;  // K
  int64_t step = 1024;
  double lsd = 2, lcl = -2;  // thresholds
  bool bos = false;          // each document begins with a BOS token, not its short contexts

  // Documents of the trained length; K is an eighth of it, at most 4096 (LongPPL's), or as given;
  // the step K / 4. Throws Error for a trained length of less than 16 or no more than K.
  static KeyTokenSettings For(int64_t trained_length, int64_t short_context = 0);
  // "longppl:1024, step 256, documents of 8192, lsd > 2, lcl > -2, BOS"
  std::string Name() const;
  bool operator==(const KeyTokenSettings&) const = default;
};

struct ByteSpan {
  int64_t begin = 0, end = 0;  // bytes of the UTF-8 text: [begin, end)
  bool operator==(const ByteSpan&) const = default;
};

struct KeyEvaluator {
  std::string name = {}, model_hash = {}, tokenizer = {}, tokenizer_hash = {};
  bool operator==(const KeyEvaluator&) const = default;
};

// The key tokens of a text for any tokenizer. A span covers whole characters, also where a token is
// a part of one; spans that touch are one.
struct KeySpans {
  std::string text_hash = {};  // HashHex of the bytes of the text
  KeyEvaluator evaluator = {};
  KeyTokenSettings settings = {};
  std::vector<ByteSpan> spans = {};    // ascending, apart
  std::vector<ByteSpan> covered = {};  // the parts of the text that were searched; the same order

  std::string Hash() const;  // of all this: the exam that rows with these key tokens sat
  bool operator==(const KeySpans&) const = default;
};

// What the evaluator said of one token.
struct ContextGain {
  int64_t token = 0;  // index in the text
  float lsd = 0, lcl = 0;
};

struct KeyTokens {
  std::vector<ContextGain> gains;  // by token; without those that are never key
  std::vector<int64_t> tokens;     // the key tokens: indices in the evaluator's tokens, ascending
  KeySpans spans;
  int64_t fed_tokens = 0;  // that went through the evaluator
};

// Finds the key tokens of `text` with `tokens`, its tokens by the evaluator's tokenizer. Only what
// the `wanted` parts need is computed (ascending; empty: the whole text), and decisions do not depend
// on which these are.
// `plan` is that of the evaluator, resolved at the length of a document for short contexts as well,
// so that they differ in nothing but context. Throws Error where `text` and `tokens` do not belong
// together, for settings that no token can meet, and as ScoringEngine::Score does.
KeyTokens FindKeyTokens(const ScoringEngine& engine, const PositionPlan& plan,
                        std::string_view text, const TokenText& tokens,
                        const KeyTokenSettings& settings, const KeyEvaluator& evaluator,
                        std::span<const ByteSpan> wanted, const RunOptions& options);

// A model that finds key tokens within its trained length, under its own plan or without scaling.
struct KeyTokenFinder {
  const ScoringEngine* engine = nullptr;
  PositionPlan plan = {};
  int64_t trained_length = 0;
  const Tokenizer* tokenizer = nullptr;
  std::string name = {}, model_hash = {};
  int64_t short_context = 0;    // 0: as KeyTokenSettings::For has it
  EncodeOptions encoding = {};  // of the text
};
// FindKeyTokens with the tokens of its tokenizer, a BOS where that adds one. Of the options angles and
// progress count. Throws Error where the trained length is unknown.
KeyTokens FindKeyTokens(const KeyTokenFinder& finder, std::string_view text,
                        std::span<const ByteSpan> wanted, const RunOptions& options);
// What that would cost.
CellCost CostOfKeyTokens(const KeyTokenFinder& finder, std::string_view text,
                         std::span<const ByteSpan> wanted, const RunOptions& options);

// The indices of the tokens that lie inside one span, ascending. Tokens are widened to whole
// characters; one without bytes is never key. Throws Error where `text`, `tokens` and `keys` do not
// belong together.
std::vector<int64_t> KeyTokenIndices(std::string_view text, const TokenText& tokens,
                                     const KeySpans& keys);

// The bytes of the tokens that windows score: what FindKeyTokens has to be asked for.
std::vector<ByteSpan> ScoredSpans(const TokenText& tokens, std::span<const EvalWindow> windows,
                                  bool bos);
// Whether all of `wanted` (ascending) was searched for key tokens.
bool Covers(const KeySpans& keys, std::span<const ByteSpan> wanted);

struct KeyTokenResult {
  int64_t key_tokens = 0, scored_tokens = 0;
  // Of the key tokens, nats; NaN without any.
  double mean_nll = std::numeric_limits<double>::quiet_NaN();
  // Of mean_nll, clustered by window; NaN with key tokens in one window alone.
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  // LongPPL = exp(mean_nll): over windows, exp(sum of n_key ln LongPPL / sum of n_key).
  double longppl = std::numeric_limits<double>::quiet_NaN();
  std::vector<int64_t> window_keys;  // [windows]
  std::vector<double> window_nll;    // [windows] mean of the window's key tokens; NaN without any
};

// The loss of the key tokens among those that a measurement of perplexity scored, which costs
// nothing more. `windows` are those of the measurement (MakeWindows with the same arguments), `key`
// is of KeyTokenIndices. Throws Error for windows that are not those of `scored`.
KeyTokenResult ScoreKeyTokens(const PerplexityResult& scored, std::span<const EvalWindow> windows,
                              bool bos, std::span<const int64_t> key);

// The key tokens among those that windows score, as the task of a sweep.
KeyTokenTask KeyTokenTaskOf(const KeySpans& keys, std::string_view text, const TokenText& tokens,
                            std::span<const EvalWindow> windows, bool bos);

// A file of spans, JSON (docs/tasks/key-tokens.md). Reading throws Error(kInvalidFile) for what is
// no such file or has spans that do not ascend within the text, and Error(kMismatch) where it is of
// another text.
void WriteKeySpans(const std::string& path, const KeySpans& keys);
KeySpans ReadKeySpans(const std::string& path, std::string_view text);

}  // namespace ropewalk
