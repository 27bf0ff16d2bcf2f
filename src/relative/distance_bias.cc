#include "ropewalk/relative/distance_bias.h"

#include <numeric>
#include <utility>

#include "src/relative/bias_row.h"
#include "src/relative/check.h"

namespace ropewalk {
namespace {

using internal::BiasRowOf;
using internal::Refuse;

template <class B>
DistanceBias Make() {
  return B{};
}

template <class B>
DistanceBiasInfo MakeInfo() {
  const internal::BiasRow<B> row = BiasRowOf<B>();
  return {row.name, row.title, row.source, Make<B>};
}

template <std::size_t... I>
std::vector<DistanceBiasInfo> MakeInfos(std::index_sequence<I...> /*alternatives*/) {
  return {MakeInfo<std::variant_alternative_t<I, DistanceBias>>()...};
}

template <class B>
int64_t Sum(const internal::BiasRow<B>& row, const B& bias, int64_t heads) {
  int64_t sum = 0;
  for (const int64_t count : row.learned(bias, heads)) {
    if (count < 0 || __builtin_add_overflow(sum, count, &sum)) {
      Refuse(std::string(row.name) + ": more learned numbers than fit");
    }
  }
  return sum;
}

}  // namespace

const std::vector<DistanceBiasInfo>& DistanceBiases() {
  static const std::vector<DistanceBiasInfo> all =
      MakeInfos(std::make_index_sequence<std::variant_size_v<DistanceBias>>());
  return all;
}

const DistanceBiasInfo& InfoOf(const DistanceBias& bias) { return DistanceBiases()[bias.index()]; }

int64_t LearnedNumbers(const DistanceBias& bias, int64_t heads) {
  return std::visit([&]<class B>(const B& b) { return Sum(BiasRowOf<B>(), b, heads); }, bias);
}

void SetLearned(std::span<const float> values, int64_t heads, DistanceBias& bias) {
  std::visit(
      [&]<class B>(B& b) {
        static_assert(kListsAllFields<B>, "Fields() of a bias leaves out a member");
        const internal::BiasRow<B> row = BiasRowOf<B>();
        if (row.learned_optional && values.empty()) return;
        if (const int64_t expected = Sum(row, b, heads); values.size() != std::size_t(expected)) {
          Refuse("values: expected " + std::to_string(expected) + " for " + std::string(row.name) +
                 " of " + std::to_string(heads) + " heads, got " + std::to_string(values.size()));
        }
        const std::vector<int64_t> counts = row.learned(b, heads);
        auto count = counts.begin();
        VisitFields<B>([&](const auto& field) {
          if constexpr (requires { (b.*field.member).assign(values.begin(), values.end()); }) {
            const auto list = values.first(static_cast<std::size_t>(*count++));
            (b.*field.member).assign(list.begin(), list.end());
            values = values.subspan(list.size());
          }
        });
      },
      bias);
}

ScoreForm Lower(const DistanceBias& bias, int64_t heads, int64_t max_distance) {
  return std::visit(
      [&]<class B>(const B& b) { return BiasRowOf<B>().lower(b, heads, max_distance); }, bias);
}

std::vector<double> Backward(const DistanceBias& bias, const ScoreForm& gradient) {
  return std::visit(
      [&]<class B>(const B& b) {
        const internal::BiasRow<B> row = BiasRowOf<B>();
        if (row.learned(b, 1).empty()) {
          Refuse("bias.method: " + std::string(row.name) + " learns nothing");
        }
        return row.backward(b, gradient);
      },
      bias);
}

}  // namespace ropewalk
