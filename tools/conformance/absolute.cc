// Cases of include/ropewalk/absolute whose rows depend on positions: sinusoidal, learned,
// hierarchical, digits, complex order, recurrent, FLOATER.
#include "ropewalk/absolute/complex_order.h"
#include "ropewalk/absolute/digits.h"
#include "ropewalk/absolute/floater.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/absolute/learned.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

Json Case(const char* id, const char* method, Json parameters) {
  return {{"id", id}, {"method", method}, {"parameters", std::move(parameters)}};
}

std::size_t Size(int64_t n) { return static_cast<std::size_t>(n); }

// Far ones of both signs.
std::vector<int64_t> Signed() {
  std::vector<int64_t> positions = kGoldenPositions;
  for (const int64_t p : {int64_t{2147483647}, int64_t{-1}, int64_t{-257}, int64_t{-1048575}}) {
    positions.push_back(p);
  }
  return positions;
}

Json SpecJson(const SinusoidalSpec& spec) {
  return {
      {"layout", spec.layout == SinusoidalLayout::kInterleaved ? "interleaved" : "concatenated"},
      {"dim", spec.dim},
      {"base", spec.base},
      {"ladder", spec.ladder == SinusoidalLadder::kPaper ? "paper" : "to-base"},
      {"cosine_first", spec.cosine_first}};
}

void AddSinusoidal(std::vector<Json>& cases) {
  const auto add = [&](const char* id, const SinusoidalSpec& spec) {
    Json c = Case(id, "sinusoidal", SpecJson(spec));
    const std::vector<int64_t> positions = Signed();
    std::vector<float> out(positions.size() * Size(spec.dim));
    Sinusoidal(spec).Rows(positions, out);
    c["positions"] = positions;
    c["out"] = Numbers(out);
    cases.push_back(std::move(c));
  };
  for (const bool interleaved : {true, false}) {
    SinusoidalSpec spec(interleaved ? SinusoidalLayout::kInterleaved
                                    : SinusoidalLayout::kConcatenated);
    const std::string id = interleaved ? "sinusoidal.interleaved" : "sinusoidal.concatenated";
    spec.dim = 8;
    add(id.c_str(), spec);
    spec.dim = 7;
    add((id + ".odd").c_str(), spec);
    spec.dim = 8;
    spec.ladder = SinusoidalLadder::kToBase;
    add((id + ".to-base").c_str(), spec);
    spec.cosine_first = true;
    add((id + ".to-base.cosine-first").c_str(), spec);
  }
  SinusoidalSpec block(SinusoidalLayout::kConcatenated);
  block.dim = 4;
  for (const auto& [id, axes, sizes] :
       {std::tuple{"sinusoidal.image", std::vector<int>{1, 0}, std::vector<int64_t>{3, 4}},
        {"sinusoidal.video", std::vector<int>{0, 1, 2}, std::vector<int64_t>{2, 3, 2}}}) {
    std::vector<SinusoidalBlock> blocks;
    Json c = Case(id, "sinusoidal-grid", {{"sizes", sizes}});
    for (const int axis : axes) {
      blocks.push_back({axis, block});
      c["parameters"]["blocks"].push_back({{"axis", axis}, {"spec", SpecJson(block)}});
    }
    int64_t patches = 1;
    for (const int64_t n : sizes) patches *= n;
    std::vector<float> out(Size(patches) * 4 * axes.size());
    SinusoidalGrid(blocks, sizes, out);
    c["out"] = Numbers(out);
    cases.push_back(std::move(c));
  }
}

void AddLearned(std::vector<Json>& cases) {
  const MadeTensor table = Make({514, 3}, 5);
  const std::vector<int64_t> positions = {0, 1, 255, 256, 257, 510, 511, 256};
  std::vector<float> out(positions.size() * 3);
  LookUpRows(table.values, 3, positions, out, 2);
  Json c = Case("learned", "learned", {{"table", table.json}, {"offset", 2}});
  c["positions"] = positions;
  c["out"] = Numbers(out);
  cases.push_back(std::move(c));

  const auto resize = [&](const char* id, const ResizeSpec& spec, int64_t rows) {
    const MadeTensor from = Make({rows, spec.dim}, 5);
    Json r = Case(id, "resize",
                  {{"from", spec.from},
                   {"to", spec.to},
                   {"prefix_rows", spec.prefix_rows},
                   {"kernel", spec.kernel == ResizeKernel::kLinear ? "linear" : "cubic"},
                   {"antialias", spec.antialias},
                   {"table", from.json}});
    r["out"] = Numbers(ResizeTable(spec, from.values));
    cases.push_back(std::move(r));
  };
  resize("learned.resized", {.from = {8}, .to = {13}, .dim = 2}, 8);
  resize("learned.resized-smaller", {.from = {9}, .to = {4}, .dim = 2}, 9);
  resize("learned.resized-bilinear", {.from = {3, 4}, .to = {5, 3}, .dim = 2}, 12);
  resize("learned.resized-trilinear", {.from = {2, 3, 2}, .to = {3, 2, 4}, .dim = 2}, 12);
  ResizeSpec vit{{4, 4}, {6, 3}, 2, 1, ResizeKernel::kCubic};
  resize("learned.resized-bicubic", vit, 17);
  vit.antialias = true;
  resize("learned.resized-bicubic-antialias", vit, 17);
  resize("learned.resized-bilinear-antialias",
         {.from = {5, 6}, .to = {2, 4}, .dim = 2, .antialias = true}, 30);
}

void AddHierarchical(std::vector<Json>& cases) {
  for (const auto& [id, rows, alpha] :
       {std::tuple{"hierarchical", 512, 0.4}, {"hierarchical.far", 1024, 0.25}}) {
    const MadeTensor table = Make({rows, 3}, 5);
    std::vector<int64_t> positions;
    for (const int64_t p :
         {0, 1, 255, 256, 257, 511, 512, 513, 2048, 4095, 4096, 4097, 131071, 262143, 1048575}) {
      if (p < int64_t{rows} * rows) positions.push_back(p);
    }
    std::vector<float> out(positions.size() * 3);
    HierarchicalRows({rows, 3, alpha}, table.values, positions, out);
    Json c = Case(id, "hierarchical", {{"table", table.json}, {"alpha", alpha}});
    c["positions"] = positions;
    c["out"] = Numbers(out);
    cases.push_back(std::move(c));
  }
}

void AddDigits(std::vector<Json>& cases) {
  const DigitSpec trained{10, 3, 1};
  for (const auto& [id, extension] :
       {std::pair{"digits.extrapolated", DigitExtension::kExtrapolate},
        {"digits.interpolated", DigitExtension::kInterpolate},
        {"digits.base-changed", DigitExtension::kChangeBase}}) {
    for (const int64_t length : {2000, 1048576}) {
      const DigitSpec spec = ExtendDigits(trained, length, extension);
      const std::vector<int64_t> positions = {0,   1,   9,   10,   255,  256,
                                              257, 749, 999, 1000, 1749, length - 1};
      std::vector<float> out(positions.size() * Size(spec.digits));
      DigitRows(spec, positions, out);
      const std::string name = std::string(id) + "." + std::to_string(length);
      Json c = Case(name.c_str(), "digits",
                    {{"trained", {{"base", trained.base}, {"digits", trained.digits}}},
                     {"length", length},
                     {"extension", std::string(id).substr(7)}});
      c["extended"] = {{"base", spec.base}, {"digits", spec.digits}, {"factor", spec.factor}};
      c["positions"] = positions;
      c["out"] = Numbers(out);
      const MadeTensor weight = Make({2, spec.digits}, 5);
      std::vector<float> projected(positions.size() * 2);
      ProjectDigits(spec, weight.values, 2, positions, projected);
      c["projection"] = {{"weight", weight.json}, {"out", Numbers(projected)}};
      cases.push_back(std::move(c));
    }
  }
}

void AddComplexOrder(std::vector<Json>& cases) {
  const std::vector<int64_t> positions = Signed();
  std::vector<int64_t> words;
  words.reserve(positions.size());
  for (std::size_t t = 0; t < positions.size(); ++t)
    words.push_back(static_cast<int64_t>(t * 3 % 5));
  const MadeTensor amplitude = Make({5, 3}, 5);
  const auto add = [&](const char* id, const ComplexOrderSpec& spec, const MadeTensor& frequency,
                       const MadeTensor& phase) {
    constexpr const char* kShared[] = {"no", "by words", "by dimensions"};
    Json c = Case(id, "complex-order",
                  {{"amplitude", amplitude.json},
                   {"frequency", frequency.json},
                   {"frequency_shared", kShared[static_cast<std::size_t>(spec.frequency)]},
                   {"phase", phase.json},
                   {"phase_shared", kShared[static_cast<std::size_t>(spec.phase)]}});
    std::vector<float> re(positions.size() * 3), im(re.size());
    ComplexOrder(spec, {amplitude.values, frequency.values, phase.values}, words, positions,
                 {re, im});
    c["words"] = words;
    c["positions"] = positions;
    c["re"] = Numbers(re);
    c["im"] = Numbers(im);
    cases.push_back(std::move(c));
  };
  add("complex-order", {5, 3}, Make({5, 3}, 6), Make({5, 3}, 7, 2));
  add("complex-order.shared", {5, 3, ComplexSharing::kWords, ComplexSharing::kDims}, Make({3}, 6),
      Make({5}, 7, 2));
}

void AddRecurrent(std::vector<Json>& cases) {
  const MadeTensor start = Make({4}, 5);
  for (const bool gru : {false, true}) {
    const int64_t gates = gru ? 3 : 1;
    const MadeTensor w = Make({gates * 4, 4}, 6), b = Make({gates * 4}, 7, 0.5f),
                     c = Make({gates * 4}, 8, 0.25f);
    std::vector<float> out(4 * 258);
    RecurrentRows(gru ? RecurrentCell::kGru : RecurrentCell::kTanh,
                  {start.values, w.values, b.values, c.values}, out);
    Json j = Case(gru ? "recurrent.gru" : "recurrent.tanh", "recurrent",
                  {{"cell", gru ? "gru" : "tanh"},
                   {"start", start.json},
                   {"weight", w.json},
                   {"input_bias", b.json},
                   {"hidden_bias", c.json}});
    for (const int64_t p : {0, 1, 2, 3, 10, 100, 255, 256, 257}) {
      j["positions"].push_back(p);
      for (const float x : std::span(out).subspan(Size(p) * 4, 4)) j["out"].push_back(Digits(x));
    }
    cases.push_back(std::move(j));
  }
}

void AddFloater(std::vector<Json>& cases) {
  const auto add = [&](const char* id, const OdeField& field, const FloaterSpec& spec,
                       const std::vector<float>& start, Json parameters) {
    const int64_t dim = field.dim();
    std::vector<float> out(Size(258 * dim));
    const double error = FloaterRows(field, spec, start, out);
    parameters["spacing"] = spec.spacing;
    parameters["substeps"] = spec.substeps;
    parameters["start"] = Numbers(start);
    Json c = Case(id, "floater", std::move(parameters));
    c["stated_error"] = error;
    for (const int64_t p : {0, 1, 2, 3, 100, 255, 256, 257}) {
      c["positions"].push_back(p);
      for (const float x : std::span(out).subspan(Size(p * dim), Size(dim))) {
        c["out"].push_back(Digits(x));
      }
    }
    cases.push_back(std::move(c));
  };
  const MadeTensor values = Make({4 * 3 + 4 + 4 + 3 * 4 + 3}, 5);
  add("floater", TanhField(3, 4, values.values), {}, {0.5f, -0.25f, 0},
      {{"field", "tanh"}, {"hidden", 4}, {"values", values.json}});
  const std::vector<DoubleDouble> frequencies = {{1, 0}, {0.25, 0}};
  add("floater.sinusoids", TurningField(frequencies), {1, 64}, {0, 1, 0, 1},
      {{"field", "turning"}, {"frequencies", {1.0, 0.25}}});
}

}  // namespace

void AddAbsoluteCases(std::vector<Json>& cases) {
  AddSinusoidal(cases);
  AddLearned(cases);
  AddHierarchical(cases);
  AddDigits(cases);
  AddComplexOrder(cases);
  AddRecurrent(cases);
  AddFloater(cases);
}

}  // namespace ropewalk::conformance
