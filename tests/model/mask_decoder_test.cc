// DeBERTa's enhanced mask decoder: its formula in double, He et al. 2020 (arXiv 2006.03654),
// section 3.2, on the layers of section 3.1, and what has no such states. The goldens of
// encoder_test.cc hold it against transformers' layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/relative.h"
#include "tests/model/encoder_support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace mask_decoder_test {

using nlohmann::json;
using test::Changed;
using test::kGoldens;
using test::LoadGolden;
using test::MessageOf;
using test::States;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kMaskDecoder = EncoderStates::kMaskDecoder;
const char* const kTable = "embeddings.position_embeddings.weight";
using Rows = std::vector<std::vector<double>>;

// The golden with linear distances and matrices of their own, and its sizes.
const char* const kModel = "deberta_decoder_linear";
constexpr int64_t kHidden = 32, kHeads = 4, kHeadDim = 8, kLayers = 2, kReach = 60, kPositions = 80;

std::vector<int32_t> Ids(int64_t tokens) {
  const auto ids = test::ReadJson(kGoldens / "cases.json")["ids"].get<std::vector<int32_t>>();
  return {ids.begin(), ids.begin() + tokens};
}

test::Tensors ReadTensors(const ModelFiles& files) {
  test::Tensors all;
  for (const auto& [name, weight] : files.tensors) {
    test::Tensor& t = all[name];
    t.shape = weight.shape;
    t.values.resize(weight.rows() * weight.cols());
    weight.ReadRows(0, weight.rows(), t.values.data());
  }
  return all;
}

class Reference {
 public:
  Reference() : tensors_(ReadTensors(OpenModel((kGoldens / kModel).string()))) {}

  std::vector<float> MaskDecoder(const std::vector<int32_t>& ids) const {
    Rows h, p;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      h.push_back(RowOf("embeddings.word_embeddings.weight", ids[t]));
      p.push_back(RowOf(kTable, static_cast<int64_t>(t)));
    }
    Normalize("embeddings.LayerNorm", h);
    for (int64_t l = 0; l + 1 < kLayers; ++l) h = Layer(l, h, h);
    Rows i = p;  // I of the paper's figure: first the positions, beside H; then its own result
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (int64_t e = 0; e < kHidden; ++e) i[t][e] += h[t][e];
    }
    for (int step = 0; step < 2; ++step) i = Layer(kLayers - 1, h, i);
    std::vector<float> out;
    for (const auto& row : i) out.insert(out.end(), row.begin(), row.end());
    return out;
  }

 private:
  std::vector<double> All(const std::string& name) const {
    const std::vector<float>& v = tensors_.at(name).values;
    return {v.begin(), v.end()};
  }
  std::vector<double> RowOf(const std::string& name, int64_t row) const {
    const float* begin = tensors_.at(name).values.data() + row * kHidden;
    return {begin, begin + kHidden};
  }
  Rows Linear(const std::string& name, const Rows& x) const {
    Rows y;
    const auto weight = All(name + ".weight"), bias = All(name + ".bias");
    for (const auto& row : x) y.push_back(reference::Linear(weight, bias, row));
    return y;
  }
  void Normalize(const std::string& name, Rows& x) const {
    const auto weight = All(name + ".weight"), bias = All(name + ".bias");
    for (auto& row : x) {
      double mean = 0, square = 0;
      for (const double v : row) mean += v / kHidden;
      for (const double v : row) square += (v - mean) * (v - mean) / kHidden;
      for (int64_t e = 0; e < kHidden; ++e) {
        row[e] = weight[e] * (row[e] - mean) / std::sqrt(square + 1e-7) + bias[e];
      }
    }
  }
  // LayerNorm(x + Linear(y)).
  Rows AddNormed(const std::string& name, Rows x, const Rows& y) const {
    const Rows z = Linear(name + ".dense", y);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (int64_t e = 0; e < kHidden; ++e) x[t][e] += z[t][e];
    }
    Normalize(name + ".LayerNorm", x);
    return x;
  }
  // Keys and values from h; queries and what is added to from i.
  Rows Layer(int64_t l, const Rows& h, const Rows& i) const {
    const std::string name = "encoder.layer." + std::to_string(l) + ".";
    const std::string self = name + "attention.self.";
    Rows distances;
    for (int64_t r = 0; r < 2 * kReach; ++r) {
      distances.push_back(RowOf("encoder.rel_embeddings.weight", r));
    }
    const Rows q = Linear(self + "query_proj", i), k = Linear(self + "key_proj", h),
               v = Linear(self + "value_proj", h), kr = Linear(self + "pos_key_proj", distances),
               qr = Linear(self + "pos_query_proj", distances);
    Rows context(i.size(), std::vector<double>(kHeads * kHeadDim));
    for (std::size_t t = 0; t < i.size(); ++t) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto part = [&](const std::vector<double>& row) {
          return std::span(row).subspan(head * kHeadDim, kHeadDim);
        };
        std::vector<double> weights;
        double sum = 0;
        for (std::size_t j = 0; j < h.size(); ++j) {
          const int64_t row =
              reference::DebertaRow(static_cast<int64_t>(t) - static_cast<int64_t>(j), 0, kReach);
          const double score = reference::Dot(part(q[t]), part(k[j])) +
                               reference::Dot(part(q[t]), part(kr[row])) +
                               reference::Dot(part(k[j]), part(qr[row]));
          sum += weights.emplace_back(std::exp(score / std::sqrt(3.0 * kHeadDim)));
        }
        for (std::size_t j = 0; j < h.size(); ++j) {
          for (int64_t e = 0; e < kHeadDim; ++e) {
            context[t][head * kHeadDim + e] += weights[j] / sum * part(v[j])[e];
          }
        }
      }
    }
    const Rows attended = AddNormed(name + "attention.output", i, context);
    Rows up = Linear(name + "intermediate.dense", attended);
    for (auto& row : up) {
      for (double& x : row) x = x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    }
    return AddNormed(name + "output", attended, up);
  }

  test::Tensors tensors_;
};

TEST(MaskDecoder, EqualsThePaperInDouble) {
  const Reference reference;
  const auto model = LoadGolden(kModel);
  for (const int64_t tokens : {1, 2, 61, 79, 80}) {
    const std::vector<int32_t> ids = Ids(tokens);
    const std::vector<float> expected = reference.MaskDecoder(ids);
    EXPECT_LE(test::Difference(States(*model, ids, {}, kMaskDecoder), expected), 1e-5) << tokens;
    EXPECT_GT(test::Difference(States(*model, ids), expected), 0.01) << tokens;
  }
}

TEST(MaskDecoder, ReadsItsTableToTheEndAndNotBeyond) {
  const auto model = LoadGolden(kModel);
  EXPECT_EQ(model->max_tokens(), INT64_MAX);
  EXPECT_EQ(model->max_tokens(kMaskDecoder), kPositions);
  EXPECT_EQ(States(*model, Ids(kPositions + 1)).size(), (kPositions + 1) * kHidden);
  EXPECT_THAT(MessageOf([&] { States(*model, Ids(kPositions + 1), {}, kMaskDecoder); }),
              AllOf(HasSubstr("81 tokens"), HasSubstr("positions for 80")));
  // Every row of the table moves its token's states.
  test::Tensors tensors = ReadTensors(OpenModel((kGoldens / kModel).string()));
  const std::vector<float> before = States(*model, Ids(kPositions), {}, kMaskDecoder);
  for (const int64_t row : {0, 1, 40, 79}) {
    test::Tensors moved = tensors;
    for (int64_t e = 0; e < kHidden; e += 2) moved[kTable].values[row * kHidden + e] += 1;
    test::TempFolder folder;
    test::fs::copy_file(kGoldens / kModel / "config.json", folder / "config.json");
    test::WriteSafetensors(folder / "model.safetensors", moved);
    const auto other = Encoder::Load(OpenModel(folder.path()));
    const auto after = States(*other, Ids(kPositions), {}, kMaskDecoder);
    for (int64_t t = 0; t < kPositions; ++t) {  // its query alone reads it
      const auto begin = before.begin() + t * kHidden;
      EXPECT_EQ(std::equal(begin, begin + kHidden, after.begin() + t * kHidden), t != row)
          << row << " " << t;
    }
    EXPECT_EQ(States(*other, Ids(5)), States(*model, Ids(5)));  // the layers do not read it
  }
}

// Positions before the first layer: the decoder adds nothing.
TEST(MaskDecoder, IsTheLastLayerWherePositionsAreInTheEmbeddings) {
  const auto golden = LoadGolden("deberta_c2p");
  EXPECT_EQ(States(*golden, Ids(300), {}, kMaskDecoder), States(*golden, Ids(300)));
  EXPECT_EQ(golden->max_tokens(kMaskDecoder), 300);
  EXPECT_THAT(MessageOf([&] { States(*golden, Ids(301), {}, kMaskDecoder); }), HasSubstr("301"));
  // The same tensor is then the embeddings' own.
  const Changed biased(kModel, {{"position_biased_input", true}});
  const auto model = Encoder::Load(OpenModel(biased.path()));
  EXPECT_EQ(States(*model, Ids(80), {}, kMaskDecoder), States(*model, Ids(80)));
  EXPECT_GT(test::Difference(States(*model, Ids(80)), States(*LoadGolden(kModel), Ids(80))), 0.01);
}

TEST(MaskDecoder, RefusedWhereThereIsNone) {
  const auto error = [](const Encoder& encoder, int64_t tokens = 3) {
    return MessageOf([&] { States(encoder, Ids(tokens), {}, kMaskDecoder); });
  };
  EXPECT_THAT(
      error(*LoadGolden("bert")),
      AllOf(HasSubstr("mask decoder"), HasSubstr("expected a DeBERTa v2 or v3 model, got bert")));
  EXPECT_THAT(error(*LoadGolden("t5")), HasSubstr("got t5"));
  EXPECT_THAT(error(*LoadGolden("deberta_v1")), HasSubstr("got deberta"));
  // As transformers saves it.
  EXPECT_THAT(error(*LoadGolden("deberta_v3")), AllOf(HasSubstr(kTable), HasSubstr("[300, 32]")));
  const Changed shorter(kModel, {{"max_position_embeddings", 79}});
  EXPECT_THAT(MessageOf([&] { Encoder::Load(OpenModel(shorter.path())); }),
              AllOf(HasSubstr(kTable), HasSubstr("[80, 32]"), HasSubstr("[79, 32]")));
  test::Tensors one = ReadTensors(OpenModel((kGoldens / kModel).string()));
  std::erase_if(one, [](const auto& t) { return t.first.starts_with("encoder.layer.1."); });
  test::TempFolder folder;
  json config = test::ReadJson(kGoldens / kModel / "config.json");
  config["num_hidden_layers"] = 1;
  test::WriteFile(folder / "config.json", config.dump());
  test::WriteSafetensors(folder / "model.safetensors", one);
  EXPECT_THAT(error(*Encoder::Load(OpenModel(folder.path()))), HasSubstr("2 layers or more"));
}

}  // namespace mask_decoder_test
}  // namespace ropewalk
