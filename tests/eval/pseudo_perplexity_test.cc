// Pseudo-perplexity: the protocol typed again on tiny encoders, and what is refused.
#include "ropewalk/eval/pseudo_perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/encoder_engine.h"

namespace ropewalk {
namespace pseudo_perplexity_test {

using testing::HasSubstr;

constexpr int32_t kVocab = 64;
const MaskedFrame kFrame = {{61}, {62}, 63};

std::unique_ptr<Encoder> Load(const std::string& golden, double alpha = 0) {
  EncoderOptions options;
  options.masked_head = true;
  if (alpha != 0) options.hierarchical_alpha = alpha;
  const std::string folder =
      (std::filesystem::path(ROPEWALK_SOURCE_DIR) / "tests/golden/hf_encoders" / golden).string();
  return Encoder::Load(OpenModel(folder), options);
}

std::vector<int32_t> Text(int64_t tokens) {
  std::vector<int32_t> ids(tokens);
  for (int64_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(2 + (7 * i + i * i / 5) % 59);
  return ids;
}

// -log p of token `at` of a content, masked between the special tokens.
double Loss(const Encoder& encoder, std::vector<int32_t> content, int64_t at) {
  const int32_t id = content[at];
  content[at] = 63;
  content.insert(content.begin(), 61);
  content.push_back(62);
  std::vector<float> states(content.size() * encoder.config().hidden);
  std::vector<float> logits(content.size() * kVocab);
  encoder.Forward(content, states.data());
  encoder.Logits(states.data(), static_cast<int64_t>(content.size()), logits.data());
  double sum = 0;
  for (int v = 0; v < kVocab; ++v) sum += std::exp(double{logits[(at + 1) * kVocab + v]});
  return std::log(sum) - double{logits[(at + 1) * kVocab + id]};
}

// Every token of one window: the definition.
TEST(PseudoPerplexity, IsTheMeanOverEachTokenMaskedInTurn) {
  for (const char* golden : {"bert_masked", "roberta_masked", "roformer_masked", "nezha_masked"}) {
    const auto encoder = Load(golden);
    const std::vector<int32_t> text = Text(40);
    const auto result = ComputePseudoPerplexity(
        EncoderEngine(*encoder), text, kFrame, {.lengths = {42}, .spans = 8, .scored_per_span = 0});
    ASSERT_EQ(result.lengths[0].tokens.size(), 40u);
    double mean = 0;
    for (int64_t i = 0; i < 40; ++i) {
      const double loss = Loss(*encoder, text, i);
      EXPECT_EQ(result.lengths[0].tokens[i].position, i + 1);
      EXPECT_NEAR(result.lengths[0].tokens[i].nll, loss, 1e-4) << golden << i;
      mean += loss / 40;
    }
    EXPECT_NEAR(result.lengths[0].mean_nll, mean, 1e-4) << golden;
    EXPECT_NEAR(result.lengths[0].perplexity, std::exp(result.lengths[0].mean_nll), 1e-9);
    EXPECT_TRUE(std::isnan(result.lengths[0].standard_error));  // one span
  }
}

// Spans do not overlap, and every length scores the same tokens, each in a window that has it; the
// windows typed again: one behind the other, the last one at the span's end.
TEST(PseudoPerplexity, TheSameTokensAtEveryLength) {
  const auto encoder = Load("bert_masked", 0.4);
  const std::vector<int32_t> text = Text(1700);
  const int64_t longest = 302, span = longest - 2;  // 300 positions are learned
  const PseudoPerplexitySpec spec = {
      .lengths = {12, 257, longest}, .spans = 4, .scored_per_span = 7, .seed = 3};
  const auto result = ComputePseudoPerplexity(EncoderEngine(*encoder), text, kFrame, spec);
  EXPECT_EQ(result.spans, 4);
  for (const PseudoPerplexity& p : result.lengths) {
    ASSERT_EQ(p.tokens.size(), 28u);
    double mean = 0;
    std::set<int64_t> begins;
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
      const ScoredToken& t = p.tokens[i];
      const ScoredToken& in_longest = result.lengths.back().tokens[i];  // its window is the span
      EXPECT_EQ(t.id, in_longest.id);
      EXPECT_EQ(t.window, static_cast<int32_t>(i / 7));
      const int64_t within = in_longest.position - 1, content = p.length - 2;
      const int64_t begin = std::min(within / content * content, span - content);
      EXPECT_EQ(t.position - 1, within - begin);
      // The span begins at a multiple of its length; which, the token and its neighbours tell.
      for (int64_t s = 0; s + span <= 1700; s += span) {
        if (text[s + within] != t.id) continue;
        const std::vector<int32_t> window(text.begin() + s + begin,
                                          text.begin() + s + begin + content);
        if (std::abs(Loss(*encoder, window, within - begin) - double{t.nll}) < 1e-4) {
          begins.insert(s);
          break;
        }
        EXPECT_LT(s + 2 * span, 1700) << "no window of the text has this loss";
      }
      mean += double{t.nll} / 28;
    }
    EXPECT_NEAR(p.mean_nll, mean, 1e-6);
    EXPECT_EQ(begins.size(), 4u);
    double sum = 0, squares = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      const double d = p.span_nll[s] - result.lengths[0].span_nll[s];
      sum += d, squares += d * d;
    }
    EXPECT_NEAR(p.difference, sum / 4, 1e-9);
    EXPECT_NEAR(p.difference_error, std::sqrt((squares - sum * sum / 4) / 3 / 4), 1e-6);
  }
  EXPECT_NE(result.lengths[0].mean_nll, result.lengths[1].mean_nll);
}

TEST(PseudoPerplexity, ThreadsAndProgressChangeNothing) {
  const auto encoder = Load("bert_masked");
  const std::vector<int32_t> text = Text(500);
  const PseudoPerplexitySpec spec = {.lengths = {20, 50}, .spans = 3, .scored_per_span = 4};
  std::vector<std::vector<double>> means;
  int64_t last = 0, whole = 0;
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(threads);
    const auto result = ComputePseudoPerplexity(EncoderEngine(*encoder), text, kFrame, spec,
                                                [&](int64_t done, int64_t all) {
                                                  last = done, whole = all;
                                                  return true;
                                                });
    EXPECT_EQ(last, whole);
    EXPECT_EQ(whole, 12 * 70);
    means.push_back({result.lengths[0].mean_nll, result.lengths[1].mean_nll});
  }
  EXPECT_EQ(means[0], means[1]);
  EXPECT_EQ(means[0], means[2]);
  EXPECT_THROW(ComputePseudoPerplexity(EncoderEngine(*encoder), text, kFrame, spec,
                                       [](int64_t, int64_t) { return false; }),
               Interrupted);
  SetNumThreads(2);
}

TEST(PseudoPerplexity, BadInput) {
  const auto encoder = Load("bert_masked");
  const auto error = [&](int64_t tokens, const PseudoPerplexitySpec& spec,
                         const MaskedFrame& frame = kFrame) -> std::string {
    try {
      ComputePseudoPerplexity(EncoderEngine(*encoder), Text(tokens), frame, spec);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(50, {.lengths = {}}), HasSubstr("lengths"));
  EXPECT_THAT(error(50, {.lengths = {30, 20}}), HasSubstr("ascending"));
  EXPECT_THAT(error(50, {.lengths = {2, 20}}), HasSubstr("no room beside 2 special tokens"));
  EXPECT_THAT(error(400, {.lengths = {301}}), HasSubstr("positions for 300; give shorter"));
  EXPECT_THAT(error(50, {.lengths = {53}}), HasSubstr("the text has 50 tokens"));
  EXPECT_THAT(error(50, {.lengths = {20}, .spans = 0}), HasSubstr("one span"));
  EXPECT_THAT(error(50, {.lengths = {20}}, {{64}, {}, 63}), HasSubstr("id 64 is outside"));
  EXPECT_THAT(error(50, {.lengths = {20}}, {{61}, {62}, -1}), HasSubstr("the mask: id -1"));
  EXPECT_EQ(error(50, {.lengths = {52}, .spans = 1, .scored_per_span = 1}), "no error");
}

}  // namespace pseudo_perplexity_test
}  // namespace ropewalk
