// What stands in front of the layers of a model of the family ropewalk, against formulas in double
// that are typed here again: every absolute encoding, the recurrent layer, their states over chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <functional>
#include <numeric>

#include "reference/absolute.h"
#include "ropewalk/model/encoder.h"
#include "tests/model/reference.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace embedder_test {

using nlohmann::json;
using test::Matrix;
using test::MessageOf;
using test::Tensor;
using test::Tensors;
using test::Tiny;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kLimit = 2e-5;

// x [tokens, hidden] as the first layer reads it, of tokens at `first`, `first` + 1, ...
using Front =
    std::function<Matrix(const Tensors& w, const std::vector<int32_t>& ids, int64_t first)>;

struct Case {
  std::string name;
  json positions;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  Front front;
  bool has_offset = true;  // whether token 0 may stand anywhere
  int64_t positions_end = INT64_MAX;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Tensor& P(const Tensors& w, const std::string& name) {
  return w.at("model.positions." + name);
}

Matrix Words(const Tensors& w, const std::vector<int32_t>& ids) {
  return test::RowsOf(w.at("model.embed_tokens.weight"), ids);
}

// Adds row(position, element).
using RowFn = std::function<double(const Tensors& w, int64_t position, int64_t element)>;
Front Added(const RowFn& row) {
  return [row](const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
    Matrix x = Words(w, ids);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t e = 0; e < x[t].size(); ++e) {
        x[t][e] += row(w, first + int64_t(t), int64_t(e));
      }
    }
    return x;
  };
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One step of PyTorch's cells: in [gates * d] holds W_ih x + b_ih, or b_ih alone.
std::vector<double> Cell(bool gru, const std::vector<double>& in, const Tensor& weight,
                         const Tensor& bias, const std::vector<double>& h) {
  const std::size_t d = h.size();
  std::vector<double> u(bias.values.begin(), bias.values.end()), out(d);
  for (std::size_t o = 0; o < u.size(); ++o) {
    for (std::size_t i = 0; i < d; ++i) u[o] += double(weight.values[o * d + i]) * h[i];
  }
  for (std::size_t i = 0; i < d; ++i) {
    if (!gru) {
      out[i] = std::tanh(in[i] + u[i]);
      continue;
    }
    const double r = Logistic(in[i] + u[i]), z = Logistic(in[d + i] + u[d + i]);
    out[i] = (1 - z) * std::tanh(in[2 * d + i] + r * u[2 * d + i]) + z * h[i];
  }
  return out;
}

Front RecurrentRowsFront(bool gru) {
  return [gru](const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
    Matrix x = Words(w, ids);
    const auto& start = P(w, "start").values;
    const auto& bias = P(w, "input_bias").values;
    std::vector<double> p(start.begin(), start.end());
    const std::vector<double> in(bias.begin(), bias.end());
    for (int64_t k = 0; k < first + int64_t(x.size()); ++k) {
      for (std::size_t e = 0; k >= first && e < p.size(); ++e) x[k - first][e] += p[e];
      p = Cell(gru, in, P(w, "weight"), P(w, "hidden_bias"), p);
    }
    return x;
  };
}

Matrix FloaterFront(const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
  Matrix x = Words(w, ids);
  std::vector<double> values;
  for (const char* name : {"w", "u", "b", "v", "c"}) {
    values.insert(values.end(), P(w, name).values.begin(), P(w, name).values.end());
  }
  const auto& start = P(w, "start").values;
  const std::size_t d = start.size();
  const auto path = reference::TanhPath(values, {start.begin(), start.end()}, 6, 0.05, 4,
                                        std::size_t(first) + x.size());
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t e = 0; e < d; ++e) x[t][e] += path[(std::size_t(first) + t) * d + e];
  }
  return x;
}

// Tap t of `kernel` reads the token t - (kernel - 1) away; nothing in front of the text.
Front Convolution(int64_t kernel, int64_t groups, bool gelu, bool residual, bool centred = false) {
  return [=](const Tensors& w, const std::vector<int32_t>& ids, int64_t) {
    const Matrix x = Words(w, ids);
    const auto channels = int64_t(x[0].size()), per = channels / groups;
    Matrix y = x;
    for (int64_t t = 0; t < int64_t(x.size()); ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = P(w, "bias").values[c];
        for (int64_t tap = 0; tap < kernel; ++tap) {
          const int64_t from = t + tap - (centred ? kernel / 2 : kernel - 1);
          const bool inside = from >= 0 && from < int64_t(x.size());
          for (int64_t i = 0; inside && i < per; ++i) {
            sum += P(w, "v").values[(c * per + i) * kernel + tap] * x[from][c / per * per + i];
          }
        }
        if (gelu) sum = 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
        y[t][c] = (residual ? x[t][c] : 0) + sum;
      }
    }
    return y;
  };
}

Matrix ComplexFront(const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
  const auto half = P(w, "amplitude").shape[1];
  Matrix x(ids.size(), std::vector<double>(2 * half));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    for (int64_t i = 0; i < half; ++i) {  // frequencies of words, phases shared by dimensions
      const std::size_t at = std::size_t(ids[t] * half + i);
      const double angle = double(P(w, "frequency").values[i]) * double(first + int64_t(t)) +
                           double(P(w, "phase").values[ids[t]]);
      const auto z = std::polar(1.0, angle) * double(P(w, "amplitude").values[at]);
      x[t][i] = z.real();
      x[t][half + i] = z.imag();
    }
  }
  return x;
}

Front BehindLayer(bool gru, const Front& front) {
  return [=](const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
    Matrix x = front(w, ids, first);
    const auto part = [&](const char* name) -> const Tensor& {
      return w.at(std::string("model.recurrent_layer.") + name);
    };
    Matrix in = test::Product(x, part("weight_ih"));
    std::vector<double> h(x[0].size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < in[t].size(); ++i) in[t][i] += part("bias_ih").values[i];
      x[t] = h = Cell(gru, in[t], part("weight_hh"), part("bias_hh"), h);
    }
    return x;
  };
}

Matrix Multiplied(const Tensors& w, const std::vector<int32_t>& ids, int64_t first) {
  Matrix x = Words(w, ids);
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t e = 0; e < x[t].size(); ++e) {
      x[t][e] *= P(w, "table").values[(std::size_t(first) + t) * x[t].size() + e];
    }
  }
  return x;
}

double Digits(const Tensors& w, int64_t position, int64_t e) {
  double sum = 0;
  for (int64_t digit = 2; digit >= 0; --digit, position /= 7) {
    sum += double(position % 7) * P(w, "weight").values[e * 3 + digit];
  }
  return sum;
}

double Hierarchical(const Tensors& w, int64_t position, int64_t e) {
  const auto& table = P(w, "table").values;
  return reference::Hierarchical({table.begin(), table.end()}, 12, 24, 0.3, position, e);
}

std::vector<Case> Cases(bool twin = false) {
  const int64_t d = Tiny().hidden, vocab = Tiny().vocab;
  const auto sinusoid = [](int64_t k, int64_t e) { return reference::Sinusoid(k, e, 24, 500); };
  const Front none = [](const Tensors& w, const std::vector<int32_t>& ids, int64_t) {
    return Words(w, ids);
  };
  const auto layer = [&](const std::string& cell) -> decltype(Case::tensors) {
    const int64_t g = cell == "gru" ? 3 * d : d;
    return {{"model.recurrent_layer.weight_ih", {g, d}},
            {"model.recurrent_layer.weight_hh", {g, d}},
            {"model.recurrent_layer.bias_ih", {g}},
            {"model.recurrent_layer.bias_hh", {g}}};
  };
  const auto path = [&](const std::string& cell) -> decltype(Case::tensors) {
    const int64_t g = cell == "gru" ? 3 * d : d;
    return {{"model.positions.start", {d}},
            {"model.positions.weight", {g, d}},
            {"model.positions.input_bias", {g}},
            {"model.positions.hidden_bias", {g}}};
  };
  std::vector<Case> cases = {
      {"sinusoidal",
       {{"absolute", {{"type", "sinusoidal"}, {"base", 500}, {"scale", 0.5}}}},
       {},
       Added([=](const Tensors&, int64_t k, int64_t e) { return 0.5 * sinusoid(k, e); })},
      {"learned",
       {{"absolute", {{"type", "learned"}, {"rows", 100}}}},
       {{"model.positions.table", {100, d}}},
       Added(
           [d](const Tensors& w, int64_t k, int64_t e) { return P(w, "table").values[k * d + e]; }),
       true,
       100},
      {"hierarchical",
       {{"absolute", {{"type", "hierarchical"}, {"rows", 12}, {"alpha", 0.3}}}},
       {{"model.positions.table", {12, d}}},
       Added(Hierarchical),
       true,
       144},
      {"multiplicative",
       {{"absolute", {{"type", "multiplicative"}}}},
       {{"model.positions.table", {Tiny().trained, d}}},
       Multiplied,
       true,
       Tiny().trained},
      {"digits",
       {{"absolute", {{"type", "digits"}, {"base", 7}}}},
       {{"model.positions.weight", {d, 3}}},
       Added(Digits),
       true,
       343},
      {"recurrent",
       {{"absolute", {{"type", "recurrent"}}}},
       path("tanh"),
       RecurrentRowsFront(false)},
      {"recurrent_gru",
       {{"absolute", {{"type", "recurrent"}, {"cell", "gru"}}}},
       path("gru"),
       RecurrentRowsFront(true)},
      {"floater",
       {{"absolute", {{"type", "floater"}, {"hidden", 6}, {"spacing", 0.05}, {"substeps", 4}}}},
       {{"model.positions.start", {d}},
        {"model.positions.w", {6, d}},
        {"model.positions.u", {6}},
        {"model.positions.b", {6}},
        {"model.positions.v", {d, 6}},
        {"model.positions.c", {d}}},
       FloaterFront},
      {"convolutional",
       {{"absolute", {{"type", "convolutional"}}}},
       {{"model.positions.v", {d, 1, 3}}, {"model.positions.bias", {d}}},
       Convolution(3, d, false, true, twin),
       false},
      {"convolutional_wide",
       {{"absolute",
         {{"type", "convolutional"},
          {"kernel", 8},
          {"groups", 4},
          {"gelu", true},
          {"residual", false}}}},
       {{"model.positions.v", {d, d / 4, 8}}, {"model.positions.bias", {d}}},
       Convolution(8, 4, true, false, twin),
       false},
      {"complex_order",
       {{"absolute",
         {{"type", "complex_order"}, {"frequency_shared", "words"}, {"phase_shared", "dims"}}}},
       {{"model.positions.amplitude", {vocab, d / 2}},
        {"model.positions.frequency", {d / 2}},
        {"model.positions.phase", {vocab}},
        {"lm_head.weight", {vocab, d}}},
       ComplexFront},
      {"rnn",
       {{"recurrent_layer", {{"cell", "tanh"}}}},
       layer("tanh"),
       BehindLayer(false, none),
       false},
      {"gru",
       {{"recurrent_layer", {{"cell", "gru"}}}},
       layer("gru"),
       BehindLayer(true, none),
       false}};
  cases.push_back(
      {"convolution_then_gru",
       {{"absolute", {{"type", "convolutional"}}}, {"recurrent_layer", {{"cell", "gru"}}}},
       layer("gru"),
       BehindLayer(true, Convolution(3, d, false, true, twin)),
       false});
  cases.back().tensors.emplace_back("model.positions.v", std::vector<int64_t>{d, 1, 3});
  cases.back().tensors.emplace_back("model.positions.bias", std::vector<int64_t>{d});
  return cases;
}

json Bidirectional() { return {{"bidirectional", true}}; }

// A folder with the case's model in it.
struct Made {
  explicit Made(const Case& c, const json& changes = json::object()) {
    weights = tiny.Weights();
    if (c.name == "complex_order") weights.erase("model.embed_tokens.weight");
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    for (const auto& [name, shape] : c.tensors) {
      Tensor t{shape, std::vector<float>(std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                                         std::multiplies<>()))};
      for (float& v : t.values) v = 0.3f * normal(engine);
      weights[name] = t;
    }
    json config = tiny.Config();
    config.erase("rope_theta");
    config["model_type"] = "ropewalk";
    config["positions"] = c.positions;
    config["tie_word_embeddings"] = c.name != "complex_order";
    config.update(changes);
    Tiny::WriteFolder(folder.path(), config, weights);
  }
  ModelFiles Open() const { return OpenModel(folder.path()); }
  std::vector<float> Expected(const Case& c, const std::vector<int32_t>& ids, int64_t first,
                              bool ahead = false) const {
    const bool tied = !weights.contains("lm_head.weight");
    return test::ReferenceFrom(tiny, weights, c.front(weights, ids, first),
                               weights.at(tied ? "model.embed_tokens.weight" : "lm_head.weight"),
                               first, 0, {false, false, false}, 1000, [](int64_t) { return 1.0; },
                               {}, {.ahead = ahead});
  }
  Tiny tiny;
  Tensors weights;
  test::TempFolder folder;
};

class Embedder : public testing::TestWithParam<Case> {};

TEST_P(Embedder, WholeChunksAndSingleTokensAreTheReference) {
  const Made made(GetParam());
  const ModelFiles files = made.Open();
  const auto decoder = Decoder::Load(files);
  const auto ids = made.tiny.Ids(60);
  const auto expected = made.Expected(GetParam(), ids, 0);
  for (const int64_t chunk : {60, 25, 7, 1}) {
    EXPECT_LE(test::Difference(test::LogitsOf(*decoder, files.config.plan, ids, {.chunk = chunk}),
                               expected),
              kLimit)
        << chunk;
  }
}

TEST_P(Embedder, ATruncatedSequenceGoesOnAsIfItHadEndedThere) {
  const Made made(GetParam());
  const ModelFiles files = made.Open();
  const auto decoder = Decoder::Load(files);
  const auto ids = made.tiny.Ids(40), other = made.tiny.Ids(15, 99);
  const int64_t hidden = files.config.hidden;
  Sequence sequence(*decoder, files.config.plan, 60, AnglePrecision::kExact);
  decoder->Forward(sequence, ids, nullptr, 0);
  for (const int64_t kept : {33, 12, 1, 0}) {  // of the first text
    sequence.Truncate(kept);
    std::vector<int32_t> text(ids.begin(), ids.begin() + kept);
    text.insert(text.end(), other.begin(), other.end());
    std::vector<float> states(other.size() * hidden), logits(other.size() * files.config.vocab);
    decoder->Forward(sequence, other, states.data(), int64_t(other.size()));
    decoder->Logits(states.data(), int64_t(other.size()), logits.data());
    auto expected = made.Expected(GetParam(), text, 0);
    expected.erase(expected.begin(), expected.begin() + kept * files.config.vocab);
    EXPECT_LE(test::Difference(logits, expected), kLimit) << kept;
  }
  sequence.Truncate(0);
  sequence.Skip(20);
  EXPECT_EQ(MessageOf([&] { decoder->Forward(sequence, other, nullptr, 0); }), "no error");
  EXPECT_EQ(sequence.tokens(), 35);
}

TEST_P(Embedder, FarPositionsAreTheReferenceOrAreRefused) {
  const Case& c = GetParam();
  const Made made(c);
  const ModelFiles files = made.Open();
  const auto decoder = Decoder::Load(files);
  const auto ids = made.tiny.Ids(4);
  const bool path = c.name.starts_with("recurrent") || c.name == "floater";
  std::vector<int64_t> places = {255, 256, 257, 4096};
  if (!path) places.insert(places.end(), {131071, 1048575});
  for (const int64_t first : places) {
    const auto run = [&] {
      return test::LogitsOf(*decoder, files.config.plan, ids, {.offset = first});
    };
    if (!c.has_offset) {
      EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, run), HasSubstr("OffsetPositions"));
    } else if (first + 4 > c.positions_end) {
      EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, run),
                  AllOf(HasSubstr("position " + std::to_string(first + 3)),
                        HasSubstr("0 to " + std::to_string(c.positions_end - 1))));
    } else {
      EXPECT_LE(test::Difference(run(), made.Expected(c, ids, first)), kLimit) << first;
    }
  }
  if (c.positions_end == INT64_MAX) return;
  const int64_t last = c.positions_end - 4;
  EXPECT_LE(test::Difference(test::LogitsOf(*decoder, files.config.plan, ids, {.offset = last}),
                             made.Expected(c, ids, last)),
            kLimit);
  EXPECT_THAT(MessageOf([&] {
                Sequence(*decoder, files.config.plan, c.positions_end + 1, AnglePrecision::kExact);
              }),
              HasSubstr("0 to " + std::to_string(c.positions_end - 1)));
}

// A tensor of another shape, or none, names itself.
TEST_P(Embedder, TensorsAreChecked) {
  for (const auto& [name, shape] : GetParam().tensors) {
    Made made(GetParam());
    made.weights.at(name).shape.push_back(1);
    test::WriteSafetensors(made.folder / "model.safetensors", made.weights);
    EXPECT_THAT(MessageOf([&] { Decoder::Load(made.Open()); }),
                HasSubstr("'" + name + "' has shape"));
    made.weights.erase(name);
    test::WriteSafetensors(made.folder / "model.safetensors", made.weights);
    EXPECT_THAT(MessageOf([&] { Decoder::Load(made.Open()); }),
                HasSubstr("'" + name + "' is missing"));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Embedder, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

std::unique_ptr<Encoder> LoadTwin(const Made& made, double alpha = 0) {
  EncoderOptions options;
  options.masked_head = true;
  if (alpha != 0) options.hierarchical_alpha = alpha;
  return Encoder::Load(made.Open(), options);
}

// [ids, vocab] logits.
std::vector<float> TwinLogits(const Encoder& encoder, const std::vector<int32_t>& ids) {
  std::vector<float> states(ids.size() * encoder.config().hidden);
  std::vector<float> logits(ids.size() * encoder.config().vocab);
  encoder.Forward(ids, states.data());
  encoder.Logits(states.data(), int64_t(ids.size()), logits.data());
  return logits;
}

class EmbedderOfTheTwin : public testing::TestWithParam<Case> {};

TEST_P(EmbedderOfTheTwin, IsTheReferenceWithoutTheMask) {
  const Case& c = GetParam();
  const Made made(c, Bidirectional());
  const auto encoder = LoadTwin(made);
  for (const int64_t tokens : {60, 1, 20}) {
    const auto ids = made.tiny.Ids(tokens);
    EXPECT_LE(test::Difference(TwinLogits(*encoder, ids), made.Expected(c, ids, 0, true)), kLimit)
        << tokens;
  }
  if (c.positions_end > 1000) return;
  EXPECT_EQ(encoder->max_tokens(), c.positions_end);
  EXPECT_THAT(MessageOf([&] { TwinLogits(*encoder, made.tiny.Ids(c.positions_end + 1)); }),
              HasSubstr(std::to_string(c.positions_end + 1) + " tokens"));
}

INSTANTIATE_TEST_SUITE_P(Types, EmbedderOfTheTwin, testing::ValuesIn(Cases(true)),
                         [](const auto& info) { return info.param.name; });

Case Plain(const json& positions) { return {"plain", positions, {}, {}}; }

TEST(Twin, PermutedTokensGivePermutedLogitsWhereThereAreNoPositions) {
  const auto permuted = [](const json& positions) {
    const Made made(Plain(positions), Bidirectional());
    const auto encoder = LoadTwin(made);
    const auto ids = made.tiny.Ids(30);
    std::vector<int32_t> reversed(ids.rbegin(), ids.rend());
    const auto there = TwinLogits(*encoder, ids), back = TwinLogits(*encoder, reversed);
    std::vector<float> again;
    for (int64_t t = 29; t >= 0; --t) {
      again.insert(again.end(), back.begin() + t * made.tiny.vocab,
                   back.begin() + (t + 1) * made.tiny.vocab);
    }
    return test::Difference(again, there);
  };
  EXPECT_LE(permuted(json::object()), 1e-5);
  EXPECT_GT(permuted({{"absolute", {{"type", "sinusoidal"}}}}), 0.01);
  EXPECT_GT(permuted({{"rotation", {{"rope_theta", 500.0}}}}), 0.01);
}

TEST(Twin, RotatesAsTheReference) {
  const Made made(Plain({{"rotation", {{"rope_theta", 500.0}}}}), Bidirectional());
  const auto encoder = LoadTwin(made);
  const auto ids = made.tiny.Ids(40);
  const Tensor& embedding = made.weights.at("model.embed_tokens.weight");
  const auto expected = test::ReferenceFrom(made.tiny, made.weights, Words(made.weights, ids),
                                            embedding, 0, 0, {true, true, true}, 1000,
                                            [](int64_t) { return 1.0; }, {}, {.ahead = true});
  EXPECT_LE(test::Difference(TwinLogits(*encoder, ids), expected), kLimit);
}

// Frequencies that depend on the length of a text are those of this text, whatever was read before.
TEST(Twin, LengthDependentFrequenciesFollowEachText) {
  const Made made(
      Plain({{"rotation", {{"rope_type", "dynamic"}, {"factor", 4.0}, {"rope_theta", 500.0}}}}),
      Bidirectional());
  const auto longer = made.tiny.Ids(200), ids = made.tiny.Ids(50);
  const auto used = LoadTwin(made), fresh = LoadTwin(made);
  TwinLogits(*used, longer);
  EXPECT_EQ(TwinLogits(*used, ids), TwinLogits(*fresh, ids));
}

TEST(Twin, HierarchicalPositionsReachTheSquareOfLearnedOnes) {
  const int64_t d = Tiny().hidden;
  const Case c = {"learned",
                  {{"absolute", {{"type", "learned"}, {"rows", 12}}}},
                  {{"model.positions.table", {12, d}}},
                  Added(Hierarchical)};
  const Made made(c, Bidirectional());
  const auto encoder = LoadTwin(made, 0.3);
  EXPECT_EQ(encoder->max_tokens(), 144);
  const auto ids = made.tiny.Ids(144);
  EXPECT_LE(test::Difference(TwinLogits(*encoder, ids), made.Expected(c, ids, 0, true)), kLimit);
  EXPECT_THAT(MessageOf([&] { LoadTwin(made, 0.5); }), HasSubstr("other than 0.5"));
  EXPECT_THAT(MessageOf([&] { TwinLogits(*LoadTwin(made), ids); }),
              AllOf(HasSubstr("12"), HasSubstr("hierarchical positions, which serve 144")));
}

TEST(Twin, RefusesWhatItDoesNotCompute) {
  const Made made(Plain(json::object()), Bidirectional());
  EXPECT_THAT(MessageOf([&] { Decoder::Load(made.Open()); }), HasSubstr("bidirectional"));
  const json map = {{"rotation", {{"rope_theta", 500.0}}}, {"map", {{"type", "rerope"}}}};
  const Made mapped(Plain(map), Bidirectional());
  EXPECT_THAT(MessageOf([&] { mapped.Open(); }), HasSubstr("rerope"));
  const json values = {{"rotation", {{"rope_theta", 500.0}, {"values", true}}}};
  const Made rotated(Plain(values), Bidirectional());
  EXPECT_THAT(MessageOf([&] { rotated.Open(); }), HasSubstr("does not rotate values"));
  Made biased(Plain(json::object()), Bidirectional());  // a head's tensor that has no place
  biased.weights["lm_head.bias"] = {{biased.tiny.vocab}, std::vector<float>(biased.tiny.vocab)};
  test::WriteSafetensors(biased.folder / "model.safetensors", biased.weights);
  EXPECT_THAT(MessageOf([&] { LoadTwin(biased); }), HasSubstr("'lm_head.bias'"));
}

TEST(EmbedderSettings, AreRefusedByName) {
  const auto message = [](const json& positions, bool tied = true) {
    json config = Tiny().Config();
    config.erase("rope_theta");
    config["model_type"] = "ropewalk";
    config["positions"] = positions;
    config["tie_word_embeddings"] = tied;
    return MessageOf([&] { ParseHfConfig(config.dump(), "config.json"); });
  };
  const auto absolute = [&](const json& part) { return message({{"absolute", part}}); };
  EXPECT_THAT(absolute({{"type", "sinusoid"}}),
              AllOf(HasSubstr("positions.absolute"), HasSubstr("\"sinusoid\""),
                    HasSubstr("did you mean \"sinusoidal\""), HasSubstr("complex_order")));
  EXPECT_THAT(absolute(json::object()), HasSubstr("type"));
  EXPECT_THAT(absolute({{"type", "sinusoidal"}, {"bass", 3}}),
              AllOf(HasSubstr("unknown key \"bass\""), HasSubstr("cosine_first")));
  EXPECT_THAT(absolute({{"type", "sinusoidal"}, {"layout", "half"}}),
              HasSubstr("one of interleaved, concatenated"));
  EXPECT_THAT(absolute({{"type", "hierarchical"}, {"alpha", 0.5}}), HasSubstr("other than 0.5"));
  EXPECT_THAT(absolute({{"type", "floater"}, {"substeps", 3}}), HasSubstr("substeps"));
  EXPECT_THAT(absolute({{"type", "learned"}, {"rows", 0}}), HasSubstr("rows"));
  EXPECT_THAT(absolute({{"type", "convolutional"}, {"groups", 5}}), HasSubstr("divisor"));
  EXPECT_THAT(absolute({{"type", "convolutional"}, {"border", "circular"}}),
              AllOf(HasSubstr("border"), HasSubstr("decoder")));
  EXPECT_THAT(absolute({{"type", "complex_order"}}), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(message({{"recurrent_layer", {{"cell", "lstm"}}}}), HasSubstr("one of tanh, gru"));
  EXPECT_THAT(message({{"recurrent_layer", {{"sell", "gru"}}}}), HasSubstr("unknown key \"sell\""));
  EXPECT_EQ(message({{"absolute", {{"type", "complex_order"}}}}, false), "no error");
}

}  // namespace embedder_test
}  // namespace ropewalk
