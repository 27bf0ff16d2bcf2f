#include "src/model/tied_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

bool SameNumbers(const Weight& a, const Weight& b) {
  if (a.shape != b.shape) return false;
  if (a.type == b.type && a.scales == nullptr && b.scales == nullptr && a.bytes == b.bytes &&
      (a.data == b.data || std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes)) == 0)) {
    return true;
  }
  std::vector<float> x(a.cols()), y(b.cols());
  for (int64_t row = 0; row < a.rows(); ++row) {
    a.ReadRows(row, 1, x.data());
    b.ReadRows(row, 1, y.data());
    if (x != y) return false;
  }
  return true;
}

void CheckTiedHead(const ModelConfig& config, const std::map<std::string, Weight>& tensors,
                   const std::string& folder) {
  const bool encoder = config.encoder != nullptr;
  if (!config.tied_head || (encoder && !config.masked_head)) return;
  // A decoder's tied head may be without a name in the family's list.
  const TensorName* name = NamesOf(config, Naming::kHuggingFace).Find(TensorId::kHead);
  const std::string head_name =
      fmt::format("{}.weight", encoder && name != nullptr ? name->name : "lm_head");
  const auto head = tensors.find(head_name);
  if (head == tensors.end()) return;
  const std::vector<ExpectedTensor> expected = ExpectedTensors(config, Naming::kHuggingFace);
  const auto table = std::find_if(expected.begin(), expected.end(), [](const ExpectedTensor& t) {
    return t.id == TensorId::kEmbedding;
  });
  const Weight* embedding = table == expected.end() ? nullptr : FindTensor(tensors, table->name);
  if (embedding == nullptr || SameNumbers(head->second, *embedding)) return;
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: tie_word_embeddings is true (said, or by the family's default), so "
                          "that the head is '{}', but '{}' has other numbers: transformers 4 "
                          "ignores them, 5 takes them. To use "
                          "them put \"tie_word_embeddings\": false into config.json; else remove "
                          "the tensor",
                          folder, table->name, head_name));
}

}  // namespace ropewalk::internal
