// Finding key tokens, over an engine whose losses are a table: a token is known behind enough
// context, and the table says how well.
#include "ropewalk/eval/key_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::ByteTokenizer;
using test::RandomText;
using testing::HasSubstr;

constexpr int64_t kVocab = 257;

// Id 16 row + column: known behind kReach[column] tokens and more, then ln p is kKnown[row], else
// kUnknown[row]. Rows meet a threshold, or miss it by nothing or by one bit of a float.
constexpr float kUp = 1.1920929e-7f;  // one bit of a float from 1 to 2
const int64_t kReach[16] = {0, 1, 5, 16, 17, 19, 20, 21, 24, 33, 40, 41, 64, 100, 130, 100000};
const float kKnown[8] = {-1, -1, -1, -2, -2 + kUp, -2 - 2 * kUp, -0.5f, 0};
const float kUnknown[8] = {-3, -3 - 2 * kUp, -3 + 2 * kUp, -9, -9, -9, -2.25f, -2};

class ContextEngine : public ScoringEngine {
 public:
  EngineFacts Facts() const override { return {.name = "context", .vocab = kVocab}; }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }
  static float LogProb(int32_t id, int64_t context) {
    if (id == 256) return -30;
    return context >= kReach[id % 16] ? kKnown[id / 16] : kUnknown[id / 16];
  }
  mutable int64_t fed = 0, longest = 0;
  mutable std::set<int64_t> final_lengths;

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    Scores scores;
    final_lengths.insert(call.final_length);
    for (const ScoreRequest& request : requests) {
      const auto size = static_cast<int64_t>(request.ids.size());
      fed += size - 1;
      longest = std::max(longest, size);
      std::vector<TokenScore>& tokens = scores.tokens.emplace_back();
      for (const int64_t p : request.positions) {
        tokens.push_back({LogProb(request.ids[static_cast<size_t>(p)], p), 0});
      }
      if (call.tick) call.tick(size - 1);
    }
    return scores;
  }
};

struct Text {
  std::string bytes;
  TokenText tokens;
};
Text RandomBytes(int64_t size, uint64_t seed) {
  Text text;
  for (const int32_t id : RandomText(size, seed).ids) text.bytes += static_cast<char>(id & 0x7f);
  text.tokens = TokenizeText(ByteTokenizer(), text.bytes);
  return text;
}

// The definition typed again, for one document of ids: key or not, of every token.
std::vector<bool> Key(const std::vector<int32_t>& ids, int64_t k, int64_t step) {
  const auto n = static_cast<int64_t>(ids.size());
  std::vector<bool> key(ids.size(), false);
  for (int64_t s = 0; s < n - k; s += step) {
    const int64_t w = std::min(step, n - s - k);
    for (int64_t t = s + k; t < s + k + w; ++t) {
      const float full = -ContextEngine::LogProb(ids[static_cast<size_t>(t)], t);
      const float narrow = -ContextEngine::LogProb(ids[static_cast<size_t>(t)], t - s);
      key[static_cast<size_t>(t)] = narrow - full > 2 && -full > -2;
    }
  }
  return key;
}

std::vector<int64_t> Expected(const TokenText& text, const KeyTokenSettings& s) {
  std::vector<int64_t> key;
  const int64_t front = s.bos ? 1 : 0;
  const auto all = static_cast<int64_t>(text.ids.size());
  for (int64_t begin = 0; begin < all; begin += s.document - front) {
    std::vector<int32_t> ids(static_cast<size_t>(front), 256);
    const int64_t end = std::min(all, begin + s.document - front);
    ids.insert(ids.end(), text.ids.begin() + begin, text.ids.begin() + end);
    const std::vector<bool> is_key = Key(ids, s.short_context, s.step);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (is_key[i]) key.push_back(begin - front + static_cast<int64_t>(i));
    }
  }
  return key;
}

RunOptions WithBos() {
  RunOptions options;
  options.bos_id = 256;
  return options;
}

KeyTokens Find(const ContextEngine& engine, const Text& text, const KeyTokenSettings& settings,
               std::span<const ByteSpan> wanted = {}) {
  return FindKeyTokens(engine, {}, text.bytes, text.tokens, settings, {.name = "table"}, wanted,
                       WithBos());
}

TEST(KeyTokens, EveryDecisionIsThatOfTheDefinition) {
  size_t found_any = 0;
  for (const int64_t size : {1, 15, 16, 17, 19, 20, 21, 22, 24, 25, 63, 64, 65, 128, 129, 200}) {
    for (const int64_t k : {1, 16, 19}) {
      for (const int64_t step : {1, 4, 5, 100}) {
        for (const bool bos : {false, true}) {
          SCOPED_TRACE(testing::Message() << size << " " << k << " " << step << " " << bos);
          const Text text = RandomBytes(size, static_cast<uint64_t>(size));
          const KeyTokenSettings settings{
              .document = 64, .short_context = k, .step = step, .bos = bos};
          const ContextEngine engine;
          const KeyTokens found = Find(engine, text, settings);
          EXPECT_EQ(found.tokens, Expected(text.tokens, settings));
          EXPECT_LE(engine.longest, 64);  // never beyond the document
          EXPECT_EQ(engine.fed, found.fed_tokens);
          for (const int64_t length : engine.final_lengths) EXPECT_EQ(length, 64);
          found_any += found.tokens.size();
        }
      }
    }
  }
  EXPECT_GT(found_any, 500u);
}

TEST(KeyTokens, ThresholdsAreStrict) {
  const ContextEngine engine;
  // Each is known behind 24 tokens, so at position 30 but not behind a short context of 16 to 23.
  const auto is_key = [&](int row) {
    Text text;
    text.bytes = std::string(30, 'x') + static_cast<char>(16 * row + 8);
    text.tokens = TokenizeText(ByteTokenizer(), text.bytes);
    const KeyTokens found = Find(engine, text, {.document = 64, .short_context = 16, .step = 8});
    const auto at = std::find_if(found.gains.begin(), found.gains.end(),
                                 [](const ContextGain& gain) { return gain.token == 30; });
    EXPECT_NE(at, found.gains.end());
    EXPECT_EQ(at->lcl, kKnown[row]);
    EXPECT_EQ(at->lsd, kKnown[row] - kUnknown[row]);
    return !found.tokens.empty() && found.tokens.back() == 30;
  };
  EXPECT_FALSE(is_key(0));  // LSD is 2
  EXPECT_TRUE(is_key(1));   // LSD is a bit more
  EXPECT_FALSE(is_key(2));  // a bit less
  EXPECT_FALSE(is_key(3));  // LCL is -2
  EXPECT_TRUE(is_key(4));   // a bit more
  EXPECT_FALSE(is_key(5));  // a bit less
  EXPECT_FALSE(is_key(6));
  EXPECT_FALSE(is_key(7));  // LSD is 2, LCL 0
}

// The last positions of long documents, of whose short contexts only those are asked for that score
// them.
TEST(KeyTokens, FarPositions) {
  for (const int64_t document : {257, 1025, 131072, 1048576}) {
    SCOPED_TRACE(document);
    const Text text = RandomBytes(document + 8, 5);
    const KeyTokenSettings settings{.document = document, .short_context = 64, .step = 16};
    const int64_t least = 64 + (document - 72 - 64) / 16 * 16;  // its step begins there
    const ByteSpan wanted[] = {{document - 72, document + 8}};
    const ContextEngine engine;
    const KeyTokens found = Find(engine, text, settings, wanted);
    EXPECT_EQ(engine.longest, document);
    EXPECT_EQ(found.gains.front().token, least);
    EXPECT_EQ(found.gains.back().token, document - 1);
    std::vector<int64_t> expected;
    for (const int64_t t : Expected(text.tokens, settings)) {
      if (t >= least) expected.push_back(t);
    }
    EXPECT_EQ(found.tokens, expected);
    EXPECT_FALSE(expected.empty());
  }
}

TEST(KeyTokens, WantedPartsChangeNoDecision) {
  const Text text = RandomBytes(500, 11);
  const KeyTokenSettings settings{.document = 100, .short_context = 16, .step = 8, .bos = true};
  const ContextEngine engine, part_engine;
  const KeyTokens all = Find(engine, text, settings);
  EXPECT_EQ(all.spans.covered, (std::vector<ByteSpan>{{0, 500}}));
  const ByteSpan wanted[] = {{3, 9}, {120, 181}, {181, 190}, {470, 471}};
  const KeyTokens part = Find(part_engine, text, settings, wanted);
  EXPECT_EQ(part.spans.covered, (std::vector<ByteSpan>{{3, 9}, {120, 190}, {470, 471}}));
  EXPECT_LT(part.fed_tokens, all.fed_tokens / 2);
  for (const ByteSpan& span : wanted) {
    for (int64_t t = span.begin; t < span.end; ++t) {
      EXPECT_EQ(std::count(part.tokens.begin(), part.tokens.end(), t),
                std::count(all.tokens.begin(), all.tokens.end(), t))
          << t;
    }
  }
  EXPECT_TRUE(Covers(all.spans, wanted));
  EXPECT_TRUE(Covers(part.spans, wanted));
  const ByteSpan more[] = {{3, 9}, {8, 10}};
  EXPECT_FALSE(Covers(part.spans, more));
}

TEST(KeyTokens, SettingsFollowTheTrainedLength) {
  EXPECT_EQ(KeyTokenSettings::For(256), KeyTokenSettings({256, 32, 8, 2, -2, false}));
  EXPECT_EQ(KeyTokenSettings::For(8192, 4096), KeyTokenSettings({8192, 4096, 1024, 2, -2, false}));
  EXPECT_EQ(KeyTokenSettings::For(131072),
            KeyTokenSettings({131072, 4096, 1024, 2, -2, false}));  // LongPPL's
  EXPECT_EQ(KeyTokenSettings::For(8192).Name(),
            "longppl:1024, step 256, documents of 8192, lsd > 2, lcl > -2");
  EXPECT_THROW(KeyTokenSettings::For(256, 256), Error);
  EXPECT_THROW(KeyTokenSettings::For(8), Error);
  EXPECT_THROW(KeyTokenSettings::For(256, -1), Error);
}

TEST(KeyTokens, WhatDoesNotFitIsRefused) {
  const ContextEngine engine;
  const Text text = RandomBytes(100, 1);
  const auto message = [&](const Text& t, const KeyTokenSettings& settings,
                           std::vector<ByteSpan> wanted = {}) -> std::string {
    try {
      Find(engine, t, settings, wanted);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const KeyTokenSettings fine{.document = 64, .short_context = 16, .step = 4};
  EXPECT_EQ(message(text, fine), "no error");
  EXPECT_THAT(message(text, {.document = 16, .short_context = 16, .step = 4}),
              HasSubstr("longer documents"));
  EXPECT_THAT(message(text, {.document = 64, .short_context = 0, .step = 4}),
              HasSubstr("at least"));
  EXPECT_THAT(message(text, {.document = 64, .short_context = 16, .step = 0}), HasSubstr("step"));
  EXPECT_THAT(message({text.bytes + "x", text.tokens}, fine), HasSubstr("101 bytes"));
  EXPECT_THAT(message({text.bytes, TextOfIds(text.tokens.ids)}, fine), HasSubstr("given ids"));
  EXPECT_THAT(message(text, fine, {{50, 101}}), HasSubstr("ascend within the 100"));
  EXPECT_THAT(message(text, fine, {{50, 60}, {40, 45}}), HasSubstr("got [40, 45)"));
  KeyTokenSettings bos = fine;
  bos.bos = true;
  EXPECT_THROW(FindKeyTokens(engine, {}, text.bytes, text.tokens, bos, {}, {}, RunOptions()),
               Error);
}

TEST(KeyTokens, CanBeInterrupted) {
  RunOptions options;
  options.progress = [](int64_t done, int64_t) { return done == 0; };
  const Text text = RandomBytes(100, 1);
  EXPECT_THROW(FindKeyTokens(ContextEngine(), {}, text.bytes, text.tokens,
                             {.document = 64, .short_context = 16, .step = 4}, {}, {}, options),
               Interrupted);
}

// ---- the loss of key tokens

TEST(KeyTokens, LossIsThatOfTheSameForwardPass) {
  const test::TinyModel& tiny = test::Tiny();
  const Text text = RandomBytes(400, 21);
  std::vector<int64_t> key;
  for (int64_t t = 7; t < 400; t += 1 + t % 13) key.push_back(t);
  for (const char* name : {"aligned:16", "windows", "half", "sliding:20"}) {
    for (const bool bos : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << " " << bos);
      Protocol protocol = Protocol::Parse(name);
      protocol.anchors = 5;
      protocol.bos = bos;
      const std::vector<EvalWindow> windows = MakeWindows(text.tokens, protocol, 60, 60, 256);
      const PerplexityResult all = MeasurePerplexity(*tiny.engine, tiny.files.config.plan,
                                                     text.tokens, protocol, 60, 60, WithBos());
      const KeyTokenResult result = ScoreKeyTokens(all, windows, bos, key);
      double sum = 0, off = 0, log_sum = 0;
      int64_t count = 0, filled = 0;
      std::vector<double> sums;
      std::vector<int64_t> counts;
      for (const EvalWindow& window : windows) {
        const std::vector<double> nll =
            test::ReferenceNll(*tiny.decoder, tiny.files.config.plan, window.ids);
        sums.push_back(0);
        counts.push_back(0);
        for (size_t p = static_cast<size_t>(window.score_begin); p < window.ids.size(); ++p) {
          const int64_t t = window.text_begin + static_cast<int64_t>(p) - (bos ? 1 : 0);
          if (std::count(key.begin(), key.end(), t) == 0) continue;
          sums.back() += nll[p];
          ++counts.back();
        }
        sum += sums.back();
        count += counts.back();
      }
      ASSERT_GT(count, 0);
      EXPECT_EQ(result.key_tokens, count);
      EXPECT_EQ(result.window_keys, counts);
      EXPECT_NEAR(result.mean_nll, sum / static_cast<double>(count), 1e-4);
      for (size_t w = 0; w < sums.size(); ++w) {
        if (counts[w] == 0) {
          EXPECT_TRUE(std::isnan(result.window_nll[w]));
          continue;
        }
        ++filled;
        const auto n = static_cast<double>(counts[w]);
        EXPECT_NEAR(result.window_nll[w], sums[w] / n, 1e-4);
        log_sum += n * std::log(std::exp(sums[w] / n));  // n_key ln LongPPL of the document
        off += std::pow(sums[w] - n * sum / static_cast<double>(count), 2);
      }
      EXPECT_NEAR(result.longppl / std::exp(log_sum / static_cast<double>(count)), 1, 1e-4);
      const auto m = static_cast<double>(filled);
      EXPECT_NEAR(result.standard_error, std::sqrt(off * m / (m - 1)) / static_cast<double>(count),
                  1e-4);
    }
  }
}

TEST(KeyTokens, WithoutKeyTokensThereIsNoNumber) {
  const Text text = RandomBytes(200, 3);
  Protocol protocol = Protocol::Parse("windows");
  const std::vector<EvalWindow> windows = MakeWindows(text.tokens, protocol, 50, 50, {});
  const ContextEngine engine;
  PerplexityResult all = MeasurePerplexity(engine, {}, text.tokens, protocol, 50, 50, RunOptions());
  const KeyTokenResult none = ScoreKeyTokens(all, windows, false, {});
  EXPECT_EQ(none.key_tokens, 0);
  EXPECT_EQ(none.scored_tokens, 4 * 49);
  EXPECT_TRUE(std::isnan(none.longppl) && std::isnan(none.mean_nll));
  const std::vector<int64_t> one = {60, 61};
  const KeyTokenResult single = ScoreKeyTokens(all, windows, false, one);
  EXPECT_EQ(single.key_tokens, 2);
  EXPECT_TRUE(std::isnan(single.standard_error));  // one window
  EXPECT_THROW(ScoreKeyTokens(all, std::span(windows).first(3), false, one), Error);
  all.tokens[0].id ^= 1;
  EXPECT_THROW(ScoreKeyTokens(all, windows, false, one), Error);
}

TEST(KeyTokens, ScoredSpansAreTheBytesOfTheScoredTokens) {
  TokenText text = TextOfIds({1, 2, 3, 4, 5, 6, 7, 8});
  text.token_bytes = {1, 2, 1, 3, 1, 1, 2, 1};
  for (const bool bos : {false, true}) {
    Protocol protocol = Protocol::Parse("half");
    protocol.bos = bos;
    const std::vector<EvalWindow> windows = MakeWindows(text, protocol, 4, 4, 0);
    const std::vector<ByteSpan> expected =
        bos ? std::vector<ByteSpan>{{3, 4}, {8, 9}} : std::vector<ByteSpan>{{4, 7}, {11, 12}};
    EXPECT_EQ(ScoredSpans(text, windows, bos), expected);
  }
}

// A finder settles what its tokenizer and trained length say, and what it costs is what it feeds.
TEST(KeyTokens, OfAFinder) {
  const Text text = RandomBytes(1500, 3);
  const ContextEngine engine;
  const ByteTokenizer tokenizer;
  KeyTokenFinder finder{.engine = &engine,
                        .plan = test::MadeUpPlan(256),
                        .trained_length = 256,
                        .tokenizer = &tokenizer,
                        .name = "table",
                        .short_context = 16};
  const ByteSpan wanted[] = {{100, 130}, {700, 1100}};
  const KeyTokens found = FindKeyTokens(finder, text.bytes, wanted, RunOptions());
  KeyTokenSettings settings = KeyTokenSettings::For(256, 16);
  settings.bos = tokenizer.adds_bos();
  EXPECT_EQ(found.spans.settings, settings);
  EXPECT_EQ(found.tokens, Find(engine, text, settings, wanted).tokens);
  EXPECT_GT(found.tokens.size(), 10u);
  const int64_t fed = engine.fed;
  EXPECT_EQ(CostOfKeyTokens(finder, text.bytes, wanted, RunOptions()).tokens, found.fed_tokens);
  EXPECT_EQ(engine.fed, fed);  // nothing ran
  finder.trained_length = 0;
  EXPECT_THROW(FindKeyTokens(finder, text.bytes, wanted, RunOptions()), Error);
}

// Of a sweep those that a window scores, once each.
TEST(KeyTokens, OfWindows) {
  const Text text = RandomBytes(1500, 3);
  const ContextEngine engine;
  const KeyTokenSettings settings{.document = 256, .short_context = 16, .step = 4};
  const KeyTokens found = Find(engine, text, settings);
  for (const bool bos : {false, true}) {
    Protocol protocol = Protocol::Parse("aligned:100");
    protocol.anchors = 4;
    protocol.bos = bos;
    const std::vector<EvalWindow> windows = MakeWindows(text.tokens, protocol, 256, 512, 256);
    const KeyTokenTask task = KeyTokenTaskOf(found.spans, text.bytes, text.tokens, windows, bos);
    // Bytes are tokens here, so a span of bytes is one of tokens.
    std::vector<int64_t> expected;
    for (const ByteSpan& scored : ScoredSpans(text.tokens, windows, bos)) {
      for (const int64_t token : found.tokens) {
        if (token >= scored.begin && token < scored.end) expected.push_back(token);
      }
    }
    EXPECT_EQ(task.tokens, expected);
    EXPECT_GT(task.tokens.size(), 5u);
    EXPECT_EQ(task.data_hash, found.spans.Hash());
    EXPECT_THAT(task.protocol, HasSubstr("longppl:16, step 4, documents of 256"));
  }
}

}  // namespace
}  // namespace ropewalk
