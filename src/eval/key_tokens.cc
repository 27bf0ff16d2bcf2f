// Which tokens are key.
#include "ropewalk/eval/key_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/eval/key_spans.h"

namespace ropewalk {
namespace {

constexpr int64_t kMostShortContext = 4096;  // LongPPL's

// A document, and where its short contexts begin; positions count a BOS.
struct Document {
  int64_t text_begin = 0;
  std::vector<int32_t> ids = {};       // as far as they are needed
  std::vector<int64_t> contexts = {};  // their beginnings
};

// What one short context scores, as positions of the document: [begin, end).
struct Scored {
  int64_t begin, end;
};
Scored ScoredBy(const KeyTokenSettings& settings, int64_t context, int64_t document_tokens) {
  const int64_t begin = context + settings.short_context;
  return {begin, std::min(begin + settings.step, document_tokens)};
}

void Check(const KeyTokenSettings& s, std::span<const ByteSpan> wanted, std::string_view text,
           const RunOptions& options) {
  int64_t least = 0;
  for (const ByteSpan& span : wanted) {
    if (span.begin < least || span.end < span.begin ||
        span.end > static_cast<int64_t>(text.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("key tokens: expected wanted spans that ascend within the {} bytes "
                              "of the text, got [{}, {})",
                              text.size(), span.begin, span.end));
    }
    least = span.end;
  }
  if (s.short_context < 1 || s.step < 1 || s.document <= s.short_context) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("key tokens: expected a short context and a step of at least 1 token "
                            "and longer documents, got {}, {} and {}",
                            s.short_context, s.step, s.document));
  }
  if (s.bos && !options.bos_id) {
    throw Error(ErrorCode::kInvalidArgument,
                "key tokens: BOS was asked for, but the evaluator names no BOS token");
  }
}

// Whether a span of tokens [begin, end) meets one of the wanted spans of bytes, asked in ascending
// order.
class Wanted {
 public:
  Wanted(std::span<const ByteSpan> wanted, const std::vector<ByteSpan>& tokens)
      : wanted_(wanted), tokens_(tokens) {}
  bool Has(int64_t begin, int64_t end) {
    const int64_t from = tokens_[static_cast<size_t>(begin)].begin;
    const int64_t to = tokens_[static_cast<size_t>(end) - 1].end;
    while (next_ < wanted_.size() && wanted_[next_].end <= from) ++next_;
    return wanted_.empty() || (next_ < wanted_.size() && wanted_[next_].begin < to);
  }

 private:
  std::span<const ByteSpan> wanted_;
  const std::vector<ByteSpan>& tokens_;
  size_t next_ = 0;
};

std::vector<Document> Documents(const TokenText& tokens, const KeyTokenSettings& settings,
                                std::optional<int32_t> bos, Wanted wanted) {
  const auto all = static_cast<int64_t>(tokens.ids.size());
  const int64_t front = bos ? 1 : 0;
  std::vector<Document> documents;
  for (int64_t begin = 0; begin < all; begin += settings.document - front) {
    const int64_t end = std::min(all, begin + settings.document - front);
    const int64_t size = front + end - begin;
    Document document{.text_begin = begin};
    // The context from 0 on is all that there is: LSD is 0.
    for (int64_t s = settings.step; s + settings.short_context < size; s += settings.step) {
      const Scored scored = ScoredBy(settings, s, size);
      if (wanted.Has(begin - front + scored.begin, begin - front + scored.end)) {
        document.contexts.push_back(s);
      }
    }
    if (document.contexts.empty()) continue;
    const int64_t needed = ScoredBy(settings, document.contexts.back(), size).end;
    if (bos) document.ids.push_back(*bos);
    const auto first = tokens.ids.begin() + begin;
    document.ids.insert(document.ids.end(), first, first + (needed - front));
    documents.push_back(std::move(document));
  }
  return documents;
}

// The whole document, and behind it its short contexts.
std::vector<ScoreRequest> RequestsFor(const Document& document, const KeyTokenSettings& settings) {
  const auto size = static_cast<int64_t>(document.ids.size());
  std::vector<ScoreRequest> requests = {{.ids = document.ids}};
  for (const int64_t s : document.contexts) {
    const Scored scored = ScoredBy(settings, s, size);
    ScoreRequest& request = requests.emplace_back();
    request.ids = std::span(document.ids).subspan(s, scored.end - s);
    for (int64_t p = scored.begin; p < scored.end; ++p) {
      requests[0].positions.push_back(p);
      request.positions.push_back(p - s);
    }
  }
  return requests;
}

int64_t TokensOf(std::span<const ScoreRequest> requests) {
  return std::accumulate(requests.begin(), requests.end(), int64_t{0},
                         [](int64_t sum, const ScoreRequest& request) {
                           return sum + static_cast<int64_t>(request.ids.size()) - 1;
                         });
}

void AddGains(const Document& document, int64_t front, std::span<const ScoreRequest> requests,
              const Scores& scores, std::vector<ContextGain>& gains) {
  size_t full = 0;
  for (size_t r = 1; r < requests.size(); ++r) {
    for (size_t i = 0; i < requests[r].positions.size(); ++i, ++full) {
      const float lcl = scores.tokens[0][full].log_prob;
      const int64_t position = requests[0].positions[full];
      gains.push_back({.token = document.text_begin - front + position,
                       .lsd = lcl - scores.tokens[r][i].log_prob,
                       .lcl = lcl});
    }
  }
}

}  // namespace

KeyTokenSettings KeyTokenSettings::For(int64_t trained_length, int64_t short_context) {
  if (trained_length < 16 || short_context < 0 || short_context >= trained_length) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("key tokens: the short context, {} tokens, has to be shorter than the "
                            "trained length of the evaluator, {} (at least 16)",
                            short_context, trained_length));
  }
  KeyTokenSettings settings{.document = trained_length, .short_context = short_context};
  if (short_context == 0) settings.short_context = std::min(kMostShortContext, trained_length / 8);
  settings.step = std::max<int64_t>(1, settings.short_context / 4);
  return settings;
}

std::string KeyTokenSettings::Name() const {
  return fmt::format("longppl:{}, step {}, documents of {}, lsd > {}, lcl > {}{}", short_context,
                     step, document, lsd, lcl, bos ? ", BOS" : "");
}

KeyTokens FindKeyTokens(const ScoringEngine& engine, const PositionPlan& plan,
                        std::string_view text, const TokenText& tokens,
                        const KeyTokenSettings& settings, const KeyEvaluator& evaluator,
                        std::span<const ByteSpan> wanted, const RunOptions& options) {
  Check(settings, wanted, text, options);
  const std::vector<ByteSpan> spans = internal::TokenSpans(text, tokens);
  const std::vector<Document> documents = Documents(
      tokens, settings, settings.bos ? options.bos_id : std::nullopt, Wanted(wanted, spans));
  KeyTokens found;
  for (const Document& document : documents) {
    found.fed_tokens += TokensOf(RequestsFor(document, settings));
  }
  int64_t done = 0;
  const auto tick = [&](int64_t more) {
    done += more;
    if (options.progress && !options.progress(done, found.fed_tokens)) throw Interrupted();
  };
  tick(0);
  for (const Document& document : documents) {
    const std::vector<ScoreRequest> requests = RequestsFor(document, settings);
    const Scores scores = engine.Score(
        {.plan = &plan, .final_length = settings.document, .angles = options.angles, .tick = tick},
        requests);
    AddGains(document, settings.bos ? 1 : 0, requests, scores, found.gains);
  }

  std::vector<ByteSpan> key;
  for (const ContextGain& gain : found.gains) {
    if (!(gain.lsd > settings.lsd && gain.lcl > settings.lcl)) continue;
    found.tokens.push_back(gain.token);
    const ByteSpan span = spans[static_cast<size_t>(gain.token)];
    if (span.begin < span.end) key.push_back(internal::Widened(text, span));
  }
  const ByteSpan whole[] = {{0, static_cast<int64_t>(text.size())}};
  found.spans = {.text_hash = HashHex(text),
                 .evaluator = evaluator,
                 .settings = settings,
                 .spans = internal::Merged(key),
                 .covered = internal::Merged(wanted.empty() ? whole : wanted)};
  return found;
}

}  // namespace ropewalk
