// The type of the KV cache as an axis of the sweep: what is planned and measured, that rows of f32 are
// those of a sweep without it, that folders go on, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/prepare.h"
#include "ropewalk/eval/recommend.h"
#include "src/eval/cell_json.h"
#include "tests/eval/noisy_sweep.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::Made;
using test::MessageOf;
using test::RandomText;
using test::TempFolder;
using test::WithoutSeconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr KvType kF32 = KvType::kF32, kBf16 = KvType::kBf16, kQ8 = KvType::kQ8_0;

// Heads of 32, which q8_0 holds; Tiny() has heads of 16.
const test::TinyModel& Wide() {
  static const std::unique_ptr<test::TinyModel> model = test::MakeTiny({.width = 64});
  return *model;
}

// A sweep of the decoder that stops after a number of cells' parts.
struct RealSweep {
  TokenText text = RandomText(900, 3);
  SweepSpec spec;
  SweepInputs inputs;
  SweepHeader header;
  std::vector<SweepTask> tasks;
  int left = -1;  // calls of progress until it is interrupted; -1: never

  explicit RealSweep(std::vector<KvType> kv, const test::TinyModel& model = Wide()) {
    for (const char* name : {"none", "yarn", "rerope"}) {
      spec.methods.emplace_back(PositionMethod::Parse(name));
    }
    spec.lengths = {64, 256};
    spec.trained_length = test::kTinyTrained;
    spec.protocol = Protocol::Parse("aligned:16");
    spec.protocol.anchors = 3;
    spec.kv = std::move(kv);
    inputs.engine = model.engine.get();
    inputs.text = &text;
    inputs.model_hash = "m";
    tasks = PlanSweep(spec, model.files.config.plan);
    header.common = CommonFields(spec, inputs, tasks.back().length);
  }
  std::vector<Cell> Run(const TempFolder& folder) {
    SweepEvents events;
    events.progress = [this](const SweepProgress&) { return left < 0 || left-- > 0; };
    return RunSweep(tasks, spec, inputs, header, folder.path(), events);
  }
};

std::vector<Cell> With(const std::vector<Cell>& cells, KvType kv) { return CellsOf(cells, kv); }

TEST(KvTypeSweep, NamesArePreciseFirstAndBadOnesRefused) {
  EXPECT_THAT(ParseKvTypes({}), ElementsAre(kF32));
  EXPECT_THAT(ParseKvTypes({"q8_0", "f32", "q8_0"}), ElementsAre(kF32, kQ8));
  EXPECT_THAT(MessageOf([] { ParseKvTypes({"q8"}); }),
              AllOf(HasSubstr("kv: "), HasSubstr("f32, bf16, q8_0"), HasSubstr("'q8'")));
}

TEST(KvTypeSweep, EveryCellWithEveryType) {
  RealSweep one({kF32}), three({kF32, kBf16, kQ8});
  ASSERT_EQ(three.tasks.size(), 3 * one.tasks.size());
  std::map<KvType, std::vector<std::string>> names;
  for (size_t i = 0; i < three.tasks.size(); ++i) {
    const SweepTask& task = three.tasks[i];
    names[task.kv].push_back(task.method + std::to_string(task.length) + task.plan_hash);
    if (task.shares >= 0) {
      EXPECT_EQ(three.tasks[static_cast<size_t>(task.shares)].kv, task.kv);
    }
    // One type after the other within a length.
    if (i > 0 && three.tasks[i - 1].length == task.length) {
      EXPECT_GE(task.kv, three.tasks[i - 1].kv);
    }
  }
  EXPECT_EQ(names[kF32], names[kQ8]);
  EXPECT_EQ(names[kF32], names[kBf16]);
  EXPECT_LE(PossibleCosts(three.tasks, three.spec).size(),
            PossibleCosts(one.tasks, one.spec).size());
}

TEST(KvTypeSweep, RowsOfF32AreThoseOfASweepWithoutTheAxis) {
  const TempFolder alone, beside;
  RealSweep one({kF32}), three({kF32, kBf16, kQ8});
  const std::vector<Cell> cells = three.Run(beside);
  const std::string plain = WithoutSeconds(one.Run(alone));
  EXPECT_EQ(WithoutSeconds(With(cells, kF32)), plain);
  EXPECT_THAT(plain, ::testing::Not(HasSubstr("\"kv")));
  std::set<std::string> identities;
  for (const Cell& cell : cells) EXPECT_TRUE(identities.insert(cell.Identity()).second);
  // The file says the same.
  EXPECT_EQ(WithoutSeconds(With(ReadResults(beside.path()).cells, kQ8)),
            WithoutSeconds(With(cells, kQ8)));
  for (const Cell& cell : cells) {
    const bool map = cell.method == "rerope";
    EXPECT_EQ(cell.kv_keys, cell.kv == kF32 ? "" : map ? "unrotated" : "rotated") << cell.method;
  }
}

// Of random weights, whose losses are far above those of a uniform guess, by less than 1 %.
TEST(KvTypeSweep, RoundingMovesLossesALittle) {
  const TempFolder folder;
  RealSweep sweep({kF32, kBf16, kQ8});
  const std::vector<Cell> cells = sweep.Run(folder);
  for (const Cell& cell : cells) {
    if (cell.kv == kF32) continue;
    const Cell* plain = FindCell(cells, cell.method, cell.factor, cell.length);
    ASSERT_EQ(plain->kv, kF32);
    EXPECT_NE(cell.window_nll, plain->window_nll) << cell.method << " " << Name(cell.kv);
    EXPECT_NEAR(cell.mean_nll / plain->mean_nll, 1, 0.01) << cell.method << " " << Name(cell.kv);
  }
}

// What is rounded is what is stored: of the first layer, whose keys no cache has touched before, the
// unrotated keys under a distance map, else the rotated ones.
TEST(KvTypeSweep, KeysAreRoundedAsTheyAreStored) {
  const test::TinyModel& model = Wide();
  constexpr int64_t kTokens = 70, kDim = 32;
  const std::vector<int32_t> ids(RandomText(kTokens, 5).ids);
  for (const char* name : {"none", "rerope:16"}) {
    const PositionPlan plan =
        PositionMethod::Parse(name).Apply(model.files.config.plan, 2, test::kTinyTrained);
    std::map<KvType, std::vector<float>> keys;
    std::vector<float> unrotated;
    for (const KvType kv : {kF32, kQ8}) {
      Sequence sequence(*model.decoder, plan, kTokens, AnglePrecision::kExact, kv);
      sequence.Observe([&](int64_t layer, const TensorView&, const TensorView& k) {
        if (layer > 0) return;
        unrotated.clear();
        for (int64_t t = 0; t < kTokens; ++t) {
          const auto* row = static_cast<const float*>(k.data) + t * k.strides[0];
          unrotated.insert(unrotated.end(), row, row + kDim);
        }
      });
      sequence.ObserveAttention([&](int64_t layer, const AttentionArgs& args) {
        if (layer > 0) return;
        keys[kv].resize(kTokens * kDim);
        args.cache->CopyKeys(0, 0, kTokens, keys[kv].data());  // [head_dim, tokens]
      });
      model.decoder->Forward(sequence, ids, nullptr, 0);
    }
    std::vector<float> row(kDim), given(kDim);
    bool same = true;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < kDim; ++i) {
        given[i] = keys[kF32][i * kTokens + t];
        same = same && given[i] == unrotated[t * kDim + i];
      }
      KvCache one(1, kDim, 1, kQ8);
      const TensorView view = TensorView::Of(given.data(), {1, 1, kDim});
      one.Append(view, view);
      one.CopyKeys(0, 0, 1, row.data());
      for (int64_t i = 0; i < kDim; ++i) ASSERT_EQ(keys[kQ8][i * kTokens + t], row[i]) << name;
    }
    EXPECT_EQ(same, std::string(name) != "none") << name;
  }
}

TEST(KvTypeSweep, InterruptedItGoesOnAndRepeatsNothing) {
  const TempFolder undisturbed;
  RealSweep whole({kF32, kQ8});
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  for (const int left : {0, 3, 17, 30}) {
    SCOPED_TRACE(left);
    const TempFolder folder;
    RealSweep sweep({kF32, kQ8});
    sweep.left = left;
    EXPECT_THROW(sweep.Run(folder), Interrupted);
    sweep.left = -1;
    EXPECT_EQ(WithoutSeconds(sweep.Run(folder)), expected);
  }
}

TEST(KvTypeSweep, AFolderGoesOnWithOtherTypes) {
  const TempFolder folder, at_once;
  RealSweep first({kF32}), more({kQ8}), both({kF32, kQ8});
  first.Run(folder);
  EXPECT_EQ(more.Run(folder).size(), first.tasks.size());
  const auto left = WhatIsLeft(both.tasks, both.spec, both.inputs, both.header, folder.path());
  EXPECT_TRUE(std::ranges::all_of(left, [](const CellLeft& l) { return l.finished; }));
  both.Run(at_once);
  EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells),
            WithoutSeconds(ReadResults(at_once.path()).cells));
}

TEST(KvTypeSweep, WhatCannotHoldItIsRefusedBeforeAnythingIsMeasured) {
  const TempFolder folder;
  RealSweep narrow({kF32, kQ8}, test::Tiny());
  EXPECT_THAT(MessageOf([&] { narrow.Run(folder); }),
              AllOf(HasSubstr("q8_0"), HasSubstr("has 16"), HasSubstr("no multiple of 32")));
  EXPECT_THAT(MessageOf([&] { ReadResults(folder.path()); }), HasSubstr("cannot read"));
  RealSweep bf16({kBf16}, test::Tiny());  // which any head holds
  EXPECT_EQ(bf16.Run(folder).front().kv, kBf16);
  Made made;  // an engine that says nothing of types
  made.tasks.back().kv = kBf16;
  const TempFolder other;
  EXPECT_THAT(MessageOf([&] { made.Run(other); }),
              AllOf(HasSubstr("bf16"), HasSubstr("'noisy'"), HasSubstr("ropewalk's own decoder")));
  EXPECT_EQ(made.engine.calls, 0);
  const EngineCall call{.plan = &made.plan, .final_length = 8, .kv = kBf16};
  EXPECT_THAT(MessageOf([&] { made.engine.Score(call, {}); }), HasSubstr("'noisy'"));
}

TEST(KvTypeSweep, MemoryIsThatOfTheType) {
  const DecoderEngine& engine = *Wide().engine;
  const PositionPlan& plan = Wide().files.config.plan;
  // Two layers with one key head of 32: 128 numbers a token, beside a table of 32 floats.
  const auto each = [&](KvType kv) {
    return static_cast<double>(engine.MemoryBytesWith(kv, plan, 40000000) -
                               engine.MemoryBytesWith(kv, plan, 20000000)) /
           2e7;
  };
  EXPECT_NEAR(each(kF32), 128 * 4 + 128, 1e-3);
  EXPECT_NEAR(each(kBf16), 128 * 2 + 128, 1e-3);
  EXPECT_NEAR(each(kQ8), 128 * 34 / 32.0 + 128, 1e-3);
  EXPECT_EQ(engine.MemoryBytes(plan, 4096), engine.MemoryBytesWith(kF32, plan, 4096));
}

class AnyKv : public test::NoisyEngine {
 public:
  void CheckKv(KvType) const override {}
};

// Methods race among those of one type: what a type says decides nothing about another's.
TEST(KvTypeSweep, TypesDoNotRaceEachOther) {
  Made plain, made;
  AnyKv engine;
  made.spec.kv = {kF32, kQ8};
  made.inputs.engine = &engine;
  made.tasks = PlanSweep(made.spec, made.plan);
  const TempFolder alone, folder;
  const std::string expected = WithoutSeconds(plain.Run(alone));
  const std::vector<Cell> cells = made.Run(folder);
  EXPECT_EQ(WithoutSeconds(With(cells, kF32)), expected);
  const std::vector<Cell> q8 = With(cells, kQ8);
  ASSERT_EQ(q8.size(), plain.tasks.size());
  EXPECT_TRUE(test::Of(q8, "linear", test::kLength).race_exit);
  EXPECT_EQ(test::Of(q8, "none", test::kRaceTrained).windows, test::kWindows);
  EXPECT_EQ(RecommendedKv(cells), kF32);
  EXPECT_EQ(Recommend(cells).at(0).method, Recommend(With(cells, kF32)).at(0).method);
}

TEST(KvTypeSweep, RowsGoThroughJsonAndBadTypesAreNamed) {
  Cell cell;
  cell.kv = kQ8;
  cell.kv_keys = "both";
  const auto json = internal::ToJson(cell);
  EXPECT_EQ(json["kv"], "q8_0");
  const Cell read = internal::CellFromJson(json);
  EXPECT_EQ(read.kv, kQ8);
  EXPECT_EQ(read.kv_keys, "both");
  EXPECT_EQ(read.Identity(), cell.Identity());
  Cell plain;
  EXPECT_NE(cell.Identity(), plain.Identity());
  EXPECT_EQ(internal::CellFromJson(internal::ToJson(plain)).kv, kF32);  // a row without the key
  auto bad = json;
  bad["kv"] = "q3";
  EXPECT_THAT(
      [&] {
        try {
          internal::CellFromJson(bad);
        } catch (const nlohmann::json::exception& e) {
          return std::string(e.what());
        }
        return std::string("no error");
      }(),
      HasSubstr("'q3'"));
}

}  // namespace
}  // namespace ropewalk
