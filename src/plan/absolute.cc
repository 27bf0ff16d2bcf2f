#include "ropewalk/plan/absolute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ropewalk/base/error.h"
#include "src/plan/absolute_words.h"

namespace ropewalk {
namespace internal {

// In descriptions, words say what is chosen.
template <class E>
requires std::is_enum_v<E> std::string FieldText(const char* name, const E& value) {
  return fmt::format("{} {}", name, WordOf(value));
}

}  // namespace internal
}  // namespace ropewalk

#include "src/base/fields_text.h"

namespace ropewalk {
namespace {

using internal::kAbsoluteNames;

static_assert(kListsAllFields<AbsoluteEncoding>, "Fields() of an encoding leaves out a member");
static_assert(kListsAllFields<RecurrentLayer>);

constexpr int64_t kNoEnd = INT64_MAX;
constexpr int64_t kMostRows = int64_t{1} << 31;
// A path is computed from position 0 on, one position after the other, and kept.
constexpr int64_t kMostPathRows = int64_t{1} << 22;

[[noreturn]] void Refuse(const char* key, const std::string& expected, const std::string& got) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("positions.absolute: {}: expected {}, got {}", key, expected, got));
}
void CheckRange(const char* key, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  Refuse(key, fmt::format("{} to {}", least, most), fmt::format("{}", value));
}
void CheckPositive(const char* key, double value) {
  if (std::isfinite(value) && value > 0) return;
  Refuse(key, "a positive number", fmt::format("{}", value));
}

struct CheckSettings {
  int64_t hidden;
  void operator()(const SinusoidalEmbedding& e) const {
    CheckPositive("base", e.base);
    if (!std::isfinite(e.scale)) Refuse("scale", "a number", fmt::format("{}", e.scale));
    if (e.layout == SinusoidalLayout::kConcatenated && hidden < 2) {
      Refuse("layout", "interleaved where hidden_size is 1", "concatenated");
    }
  }
  void operator()(const HierarchicalEmbedding& e) const {
    CheckRange("rows", e.rows, 1, kMostRows);
    if (e.alpha > 0 && e.alpha < 1 && e.alpha != 0.5) return;
    Refuse(
        "alpha",
        "a number between 0 and 1 other than 0.5, at which positions i n + j and j n + i are one",
        fmt::format("{}", e.alpha));
  }
  void operator()(const MultiplicativeEmbedding& e) const {
    CheckRange("rows", e.rows, 1, kMostRows);
  }
  void operator()(const DigitsEmbedding& e) const {
    CheckRange("base", e.base, 2, int64_t{1} << 20);
    CheckRange("digits", e.digits, 1, 53);
    if (!(e.factor >= 1 && e.factor <= 0x1p53)) {
      Refuse("factor", "1 or more", fmt::format("{}", e.factor));
    }
  }
  void operator()(const RecurrentEmbedding&) const {}
  void operator()(const FloaterEmbedding& e) const {
    CheckRange("hidden", e.hidden, 1, int64_t{1} << 20);
    CheckPositive("spacing", e.spacing);
    CheckRange("substeps", e.substeps, 2, int64_t{1} << 20);
    if (e.substeps % 2 != 0) Refuse("substeps", "an even number", fmt::format("{}", e.substeps));
  }
  void operator()(const ConvolutionalEmbedding& e) const {
    CheckRange("kernel", e.kernel, 1, 1024);
    if (e.groups < 1 || hidden % e.groups != 0) {
      Refuse("groups", fmt::format("a divisor of hidden_size, {}", hidden),
             fmt::format("{}", e.groups));
    }
  }
  void operator()(const ComplexOrderEmbedding&) const {
    if (hidden % 2 == 0) return;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("positions.absolute: complex_order: expected an even hidden_size, of "
                            "which half are real parts, got {}",
                            hidden));
  }
};

struct CountPositions {
  template <class E>
  int64_t operator()(const E&) const {
    return kNoEnd;
  }
  int64_t operator()(const HierarchicalEmbedding& e) const { return e.rows * e.rows; }
  int64_t operator()(const MultiplicativeEmbedding& e) const { return e.rows; }
  // Those whose quotient by the factor has no more digits.
  int64_t operator()(const DigitsEmbedding& e) const {
    const double power =
        std::min(std::pow(static_cast<double>(e.base), static_cast<double>(e.digits)), 0x1p53);
    auto end = static_cast<int64_t>(std::min(std::ceil(power * e.factor), 0x1p53));
    while (end > 1 && static_cast<double>(end - 1) / e.factor >= power) --end;
    return end;
  }
  int64_t operator()(const RecurrentEmbedding&) const { return kMostPathRows; }
  int64_t operator()(const FloaterEmbedding&) const { return kMostPathRows; }
};

void HashValue(double value, Hasher& hasher) { hasher.UpdateValue(static_cast<float>(value)); }
template <class T>
void HashValue(const T& value, Hasher& hasher) {
  hasher.UpdateValue(value);
}

}  // namespace

const char* Name(const AbsoluteEncoding& encoding) { return kAbsoluteNames[encoding.index()]; }

std::string Describe(const AbsoluteEncoding& encoding) {
  return std::visit([&](const auto& e) { return internal::DescribeFields(Name(encoding), e); },
                    encoding);
}

std::string Describe(const RecurrentLayer& layer) {
  return internal::DescribeFields("recurrent layer", layer);
}

int64_t PositionsOf(const AbsoluteEncoding& encoding) {
  return std::visit(CountPositions{}, encoding);
}

bool ReadsTokens(const AbsoluteEncoding& encoding) {
  return std::holds_alternative<ConvolutionalEmbedding>(encoding);
}

void Check(const AbsoluteEncoding& encoding, int64_t hidden) {
  std::visit(CheckSettings{hidden}, encoding);
}

void Hash(const AbsoluteEncoding& encoding, Hasher& hasher) {
  hasher.UpdateValue(static_cast<uint8_t>(encoding.index()));
  std::visit(
      [&]<class E>(const E& e) {
        VisitFields<E>([&](const auto& field) { HashValue(e.*field.member, hasher); });
      },
      encoding);
}

}  // namespace ropewalk
