// The components of tokenizer.json that are lists of steps, and access to its nodes by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/tokenizer/bpe_tokenizer.h"

namespace ropewalk::internal {

// A JSON value that knows where it stands, so that every error names file and key. A key that is
// null counts as absent.
struct JsonNode {
  const nlohmann::json& value;
  std::string file, key;

  bool IsNested() const { return value.is_object() && !value.empty(); }
  bool Has(const std::string& name) const;
  JsonNode At(const std::string& name) const;  // Error when absent
  const std::string& String() const;
  int64_t Integer(int64_t low, int64_t high) const;
  bool Bool(const std::string& name, bool otherwise) const;
  const nlohmann::json& Object() const;
  const nlohmann::json::array_t& Array() const;
  void Only(std::initializer_list<const char*> names) const;  // Error for any other key
  std::string Where() const;
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void Unsupported(const std::string& what) const;
};

void ReadNormalizer(const JsonNode& node, std::vector<NormalizerStep>* steps);
void ReadPreTokenizer(const JsonNode& node, std::vector<WordStep>* steps);
void ReadDecoder(const JsonNode& node, std::vector<DecodeStep>* steps);

}  // namespace ropewalk::internal
