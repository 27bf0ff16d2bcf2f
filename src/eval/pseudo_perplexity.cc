#include "ropewalk/eval/pseudo_perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/statistics.h"
#include "src/eval/lanes.h"
#include "src/eval/rng.h"

namespace ropewalk {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "pseudo-perplexity: " + message);
}

// One token of the text that is scored.
struct Scored {
  int32_t span;
  int64_t span_begin, index;  // in the text, both
};

// The window of a token at one length: where its content begins in the text.
int64_t WindowBegin(const Scored& s, int64_t content, int64_t span_tokens) {
  const int64_t within = s.index - s.span_begin;
  return s.span_begin + std::min(within / content * content, span_tokens - content);
}

void Check(const MaskedEngine& engine, const std::vector<int32_t>& text, const MaskedFrame& frame,
           const PseudoPerplexitySpec& spec) {
  if (spec.lengths.empty() || !std::is_sorted(spec.lengths.begin(), spec.lengths.end())) {
    Refuse("lengths: expected one or more, in ascending order");
  }
  if (spec.spans < 1 || spec.scored_per_span < 0) {
    Refuse("expected one span or more, and 0 or more scored tokens of each");
  }
  const int64_t special = frame.special_tokens();
  if (spec.lengths.front() <= special) {
    Refuse(fmt::format("a window of {} tokens has no room beside {} special tokens",
                       spec.lengths.front(), special));
  }
  if (const int64_t longest = spec.lengths.back(); longest > engine.max_tokens()) {
    Refuse(
        fmt::format("windows of {} tokens, but as it was loaded the model has positions for {}; "
                    "give shorter lengths, or hierarchical positions, which serve the square of "
                    "learned ones",
                    longest, engine.max_tokens()));
  }
  const auto tokens = static_cast<int64_t>(text.size());
  if (tokens < spec.lengths.back() - special) {
    Refuse(
        fmt::format("the text has {} tokens, a window of {} takes {} of them; give a longer text "
                    "or shorter lengths",
                    tokens, spec.lengths.back(), spec.lengths.back() - special));
  }
  const int64_t vocab = engine.vocab();
  const auto outside = [&](int32_t id) { return id < 0 || id >= vocab; };
  const auto check = [&](const char* what, std::span<const int32_t> ids) {
    const auto it = std::find_if(ids.begin(), ids.end(), outside);
    if (it == ids.end()) return;
    Refuse(
        fmt::format("{}: id {} is outside the vocabulary of {} tokens; was the text tokenized "
                    "for another model?",
                    what, *it, vocab));
  };
  check("text", text);
  check("the tokens in front", frame.front);
  check("the tokens behind", frame.back);
  check("the mask", {&frame.mask, 1});
}

// Spans at equal steps of the text's stretches, and tokens at equal steps of each.
std::vector<Scored> ChooseTokens(int64_t text_tokens, int64_t span_tokens,
                                 const PseudoPerplexitySpec& spec, PseudoPerplexityResult& result) {
  const int64_t stretches = text_tokens / span_tokens;
  result.spans = std::min(spec.spans, stretches);
  result.scored_per_span =
      spec.scored_per_span == 0 ? span_tokens : std::min(spec.scored_per_span, span_tokens);
  internal::SplitMix64 rng(spec.seed);
  const auto spread = [](int64_t i, double shift, int64_t of, int64_t n) {
    const double at = (static_cast<double>(i) + shift) * static_cast<double>(of);
    return std::min(static_cast<int64_t>(at / static_cast<double>(n)), of - 1);
  };
  const double shift = rng.Uniform();
  std::vector<Scored> scored;
  for (int64_t s = 0; s < result.spans; ++s) {
    const int64_t begin = spread(s, shift, stretches, result.spans) * span_tokens;
    const double first = rng.Uniform();
    for (int64_t t = 0; t < result.scored_per_span; ++t) {
      scored.push_back({static_cast<int32_t>(s), begin,
                        begin + spread(t, first, span_tokens, result.scored_per_span)});
    }
  }
  return scored;
}

double NegativeLogProbability(std::span<const float> logits, int32_t id) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  return most + std::log(sum) - double{logits[id]};
}

// Runs copies of windows of one length, one after another.
class CopyRunner {
 public:
  CopyRunner(const MaskedEngine& engine, const std::vector<int32_t>& text, const MaskedFrame& frame,
             int64_t length, int64_t span_tokens)
      : engine_(engine),
        text_(text),
        frame_(frame),
        content_(length - frame.special_tokens()),
        span_tokens_(span_tokens),
        logits_(engine.vocab()) {}

  ScoredToken Run(const Scored& s) {
    const int64_t begin = WindowBegin(s, content_, span_tokens_);
    std::vector<int32_t> ids = frame_.front;
    ids.insert(ids.end(), text_.begin() + begin, text_.begin() + begin + content_);
    ids.insert(ids.end(), frame_.back.begin(), frame_.back.end());
    const auto position = static_cast<int64_t>(frame_.front.size()) + s.index - begin;
    ids[position] = frame_.mask;
    engine_.Predict(ids, position, logits_);
    const int32_t id = text_[s.index];
    return {s.span, static_cast<int32_t>(position), id,
            static_cast<float>(NegativeLogProbability(logits_, id))};
  }

 private:
  const MaskedEngine& engine_;
  const std::vector<int32_t>& text_;
  const MaskedFrame& frame_;
  int64_t content_, span_tokens_;
  std::vector<float> logits_;
};

// Means of the spans, and what follows from them. `first`: the first length's, null: this is it.
void Summarize(int64_t spans, const PseudoPerplexity* first, PseudoPerplexity& p) {
  std::vector<double> sums(spans), differences(spans);
  const double per_span = static_cast<double>(p.tokens.size()) / static_cast<double>(spans);
  for (const ScoredToken& t : p.tokens) sums[t.window] += double{t.nll};
  for (int64_t s = 0; s < spans; ++s) p.span_nll.push_back(sums[s] / per_span);
  const PairedTest all = TestPaired(p.span_nll);
  p.mean_nll = all.mean;
  p.standard_error = all.standard_error;
  p.perplexity = std::exp(p.mean_nll);
  if (first == nullptr) return;
  for (int64_t s = 0; s < spans; ++s) differences[s] = p.span_nll[s] - first->span_nll[s];
  const PairedTest paired = TestPaired(differences);
  p.difference = paired.mean;
  p.difference_error = paired.standard_error;
}

}  // namespace

MaskedFrame MaskedFrameOf(const Tokenizer& tokenizer, std::optional<int32_t> mask) {
  MaskedFrame frame = {tokenizer.front(), tokenizer.back(), mask.value_or(-1)};
  if (mask) return frame;
  for (int32_t id = 0; id < tokenizer.vocab_size() && frame.mask < 0; ++id) {
    const std::string piece = tokenizer.Piece(id);
    if (piece == "[MASK]" || piece == "<mask>") frame.mask = id;
  }
  if (frame.mask < 0) {
    throw Error(ErrorCode::kUnsupported,
                "the tokenizer has no token [MASK] or <mask>, which stands for the token that a "
                "masked language model predicts");
  }
  if (frame.special_tokens() == 0) {
    throw Error(ErrorCode::kUnsupported,
                "the special tokens around a text are unknown, because there is no post_processor "
                "in a tokenizer.json");
  }
  return frame;
}

PseudoPerplexityResult ComputePseudoPerplexity(const MaskedEngine& engine,
                                               const std::vector<int32_t>& text,
                                               const MaskedFrame& frame,
                                               const PseudoPerplexitySpec& spec,
                                               const ProgressFn& progress) {
  Check(engine, text, frame, spec);
  const int64_t span_tokens = spec.lengths.back() - frame.special_tokens();
  PseudoPerplexityResult result;
  const std::vector<Scored> scored =
      ChooseTokens(static_cast<int64_t>(text.size()), span_tokens, spec, result);
  const auto copies = static_cast<int64_t>(scored.size());
  int64_t done = 0, all = 0;
  for (const int64_t length : spec.lengths) all += copies * length;
  const internal::TickFn tick = [&](int64_t tokens) {
    done += tokens;
    if (progress && !progress(done, all)) throw Interrupted();
  };
  result.lengths.reserve(spec.lengths.size());
  for (const int64_t length : spec.lengths) {
    PseudoPerplexity& p = result.lengths.emplace_back();
    p.length = length;
    p.tokens.resize(copies);
    std::atomic<int64_t> next = 0;
    const auto lanes = static_cast<int>(std::min<int64_t>(NumThreads(), copies));
    internal::RunLanes(lanes, tick, [&](int, const internal::TickFn& lane_tick) {
      CopyRunner runner(engine, text, frame, length, span_tokens);
      for (int64_t i = next++; i < copies; i = next++) {
        p.tokens[i] = runner.Run(scored[i]);
        lane_tick(length);
      }
    });
    Summarize(result.spans, &p == &result.lengths[0] ? nullptr : result.lengths.data(), p);
  }
  return result;
}

}  // namespace ropewalk
