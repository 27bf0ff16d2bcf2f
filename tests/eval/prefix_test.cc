// A prefix that is not scored: which tokens windows score behind it, of decoders and, through the
// encoder, of encoder-decoder models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/encoder_decoder_engine.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/prepare.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace prefix_test {

using test::MessageOf;
using testing::AllOf;
using testing::HasSubstr;

TokenText Text(int64_t tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(2 + (7 * i + i * i / 5) % 59);
  }
  return TextOfIds(std::move(ids));
}

Protocol With(const std::string& name, int64_t prefix) {
  Protocol protocol = Protocol::Parse(name);
  if (protocol.kind == Protocol::Kind::kAligned && protocol.anchors == 0) protocol.anchors = 4;
  protocol.prefix = prefix;
  return protocol;
}

// [begin, end) in the text of what each window scores.
std::vector<std::pair<int64_t, int64_t>> Scored(const Protocol& protocol, int64_t length) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const EvalWindow& w : MakeWindows(Text(1000), protocol, length, length, std::nullopt)) {
    out.emplace_back(w.text_begin + w.score_begin,
                     w.text_begin + static_cast<int64_t>(w.ids.size()));
  }
  return out;
}

TEST(Prefix, WindowsScoreWhatStandsBehindIt) {
  const auto windows = Scored(With("windows", 30), 100);
  ASSERT_EQ(windows.size(), 10u);
  for (size_t w = 0; w < 10; ++w) {
    EXPECT_EQ(windows[w],
              std::pair(static_cast<int64_t>(100 * w + 30), static_cast<int64_t>(100 * w + 100)));
  }
  // Behind the middle of a window there is nothing to leave out, before it there is.
  EXPECT_EQ(Scored(With("half", 51), 100), Scored(With("half", 0), 100));
  EXPECT_EQ(Scored(With("half", 60), 100)[0], std::pair(int64_t{60}, int64_t{100}));
  // The last K tokens are the same with any prefix in front of them.
  EXPECT_EQ(Scored(With("aligned:40", 60), 100), Scored(With("aligned:40", 0), 100));
  const auto sliding = Scored(With("sliding:25", 75), 100);
  EXPECT_EQ(sliding.front(), std::pair(int64_t{75}, int64_t{100}));
  for (size_t w = 1; w < sliding.size(); ++w) {
    EXPECT_EQ(sliding[w].first, sliding[w - 1].second);  // each token once, but for the first 75
  }
  EXPECT_EQ(sliding.back().second, 1000);
}

TEST(Prefix, NamesAndRefusals) {
  EXPECT_EQ(With("windows", 0).Name(), "windows");
  EXPECT_EQ(With("windows", 64).Name(), "windows, prefix 64");
  Protocol encoded = With("aligned:8", 64);
  encoded.prefix_encoded = true;
  EXPECT_EQ(encoded.Name(), "aligned:8, prefix 64 to the encoder");
  EXPECT_TRUE(encoded.CanScore(72));
  EXPECT_FALSE(encoded.CanScore(71));
  EXPECT_FALSE(With("windows", 64).CanScore(64));
  EXPECT_THAT(MessageOf([] { Scored(With("aligned:41", 60), 100); }),
              AllOf(HasSubstr("prefix of 60"), HasSubstr("aligned:40"), HasSubstr("scores 41")));
  EXPECT_THAT(MessageOf([] { Scored(With("sliding:26", 75), 100); }),
              AllOf(HasSubstr("prefix of 75"), HasSubstr("sliding:25")));
  EXPECT_THAT(MessageOf([] { Scored(With("windows", 100), 100); }),
              AllOf(HasSubstr("leaves 0"), HasSubstr("length above 100")));
  SweepSpec spec;
  spec.protocol = With("aligned", 100);
  SettleProtocol(128, spec);
  EXPECT_EQ(spec.protocol.scored_per_anchor, 28);
  spec.protocol.prefix = 10;
  SettleProtocol(128, spec);
  EXPECT_EQ(spec.protocol.scored_per_anchor, 64);
}

const std::filesystem::path kModels =
    std::filesystem::path(ROPEWALK_SOURCE_DIR) / "tests/golden/hf_encoder_decoders";

std::unique_ptr<EncoderDecoder> Load(const char* name) {
  return EncoderDecoder::Load(OpenModel((kModels / name).string()));
}

// The protocol typed again: eos behind the prefix, the start token in front of the rest.
std::vector<double> Losses(const EncoderDecoder& model, std::vector<int32_t> window,
                           int64_t prefix) {
  const Decoder& decoder = model.decoder();
  const int64_t vocab = decoder.config().vocab, hidden = decoder.config().hidden;
  std::vector<int32_t> source(window.begin(), window.begin() + prefix);
  source.push_back(1);
  std::vector<float> read(source.size() * static_cast<size_t>(hidden));
  model.encoder().Forward(source, read.data());
  Sequence sequence(decoder, decoder.config().plan, 4096, AnglePrecision::kExact);
  decoder.ReadSource(sequence, read.data(), static_cast<int64_t>(source.size()));
  std::vector<int32_t> fed = {0};
  fed.insert(fed.end(), window.begin() + prefix, window.end() - 1);
  const auto n = static_cast<int64_t>(fed.size());
  std::vector<float> states(static_cast<size_t>(n * hidden)),
      logits(static_cast<size_t>(n * vocab));
  decoder.Forward(sequence, fed, states.data(), n);
  decoder.Logits(states.data(), n, logits.data());
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(double{logits[i * vocab + v]});
    out.push_back(std::log(sum) - double{logits[i * vocab + window[prefix + i]]});
  }
  return out;
}

TEST(PrefixOfEncoderDecoder, LossesAreThoseOfTheProtocol) {
  for (const char* name : {"t5_lm", "umt5_lm"}) {
    const auto model = Load(name);
    const TokenText text = Text(1200);
    for (const auto& [prefix, length] :
         {std::pair<int64_t, int64_t>{1, 9}, {127, 300}, {128, 300}, {129, 300}, {40, 600}}) {
      const EncoderDecoderEngine engine(*model, prefix);
      Protocol protocol = With("windows", prefix);
      protocol.prefix_encoded = true;
      protocol.anchors = 2;
      RunOptions options;
      options.entropy = options.by_position = true;
      const PerplexityResult result = MeasurePerplexity(engine, model->decoder().config().plan,
                                                        text, protocol, length, length, options);
      ASSERT_EQ(result.tokens.size(), static_cast<size_t>(2 * (length - prefix)));
      double mean = 0;
      for (int64_t w = 0; w < 2; ++w) {
        const std::vector<int32_t> window(text.ids.begin() + w * length,
                                          text.ids.begin() + (w + 1) * length);
        const std::vector<double> losses = Losses(*model, window, prefix);
        for (int64_t i = 0; i < length - prefix; ++i) {
          const ScoredToken& t = result.tokens[static_cast<size_t>(w * (length - prefix) + i)];
          EXPECT_EQ(t.position, prefix + i);
          EXPECT_EQ(t.id, window[static_cast<size_t>(prefix + i)]);
          EXPECT_NEAR(double{t.nll}, losses[static_cast<size_t>(i)], 1e-4);
          mean += losses[static_cast<size_t>(i)];
        }
      }
      mean /= static_cast<double>(result.tokens.size());
      EXPECT_NEAR(result.mean_nll, mean, 1e-5) << name << prefix;
      EXPECT_TRUE(std::isfinite(result.entropy));
      // Loss by position: none where the encoder reads.
      for (size_t b = 0; b < result.bucket_nll.size(); ++b) {
        EXPECT_EQ(std::isfinite(result.bucket_nll[b]), result.bucket_edges[b + 1] > prefix) << b;
      }
    }
  }
}

// Requests of a call do not touch one another, on one thread or several.
TEST(PrefixOfEncoderDecoder, ScoresDoNotDependOnTheCall) {
  const auto model = Load("t5_lm");
  const EncoderDecoderEngine engine(*model, 20);
  const TokenText text = Text(900);
  std::vector<ScoreRequest> requests;
  for (const int64_t begin : {0, 300, 301, 0}) {
    ScoreRequest request;
    request.ids = std::span(text.ids).subspan(static_cast<size_t>(begin), 200);
    request.positions.resize(180);
    std::iota(request.positions.begin(), request.positions.end(), 20);
    requests.push_back(std::move(request));
  }
  const PositionPlan& plan = model->decoder().config().plan;
  int64_t ticked = 0;
  const EngineCall call = {
      .plan = &plan, .final_length = 200, .tick = [&](int64_t n) { ticked += n; }};
  const Scores all = engine.Score(call, requests);
  EXPECT_EQ(ticked, 4 * 200);
  EXPECT_EQ(all.fed_tokens, 4 * 200);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Scores one = engine.Score(call, std::span(requests).subspan(i, 1));
    for (size_t t = 0; t < 180; ++t) {
      EXPECT_EQ(one.tokens[0][t].log_prob, all.tokens[i][t].log_prob) << i << " " << t;
    }
  }
  EXPECT_NE(all.tokens[0][0].log_prob, all.tokens[1][0].log_prob);
  requests[2].positions = {19, 20};
  EXPECT_THAT(MessageOf([&] { engine.Score(call, requests); }),
              AllOf(HasSubstr("first 20 tokens"), HasSubstr("position 19")));
  EXPECT_THAT(MessageOf([&] { EncoderDecoderEngine(*model, 0); }), HasSubstr("got 0"));
}

}  // namespace prefix_test
}  // namespace ropewalk
