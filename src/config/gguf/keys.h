// Typed reading of GGUF metadata under one architecture's prefix, with errors that name file, key,
// what was expected and what came.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

class GgufKeys {
 public:
  GgufKeys(const GgufFile& gguf, std::string prefix) : gguf_(gguf), prefix_(std::move(prefix)) {}

  std::string Name(const std::string& key) const { return prefix_ + key; }
  const std::string& prefix() const { return prefix_; }
  const std::string& File() const { return gguf_.file->path(); }
  const GgufFile& gguf() const { return gguf_; }
  // The keys that were asked for, without the prefix: what this reader knows.
  const std::set<std::string>& asked() const { return asked_; }

  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  bool IsArray(const std::string& key) const;
  // Absent: nullopt. Present with the wrong type or out of [low, high]: Error.
  std::optional<int64_t> Int(const std::string& key, int64_t low, int64_t high) const;
  int64_t RequiredInt(const std::string& key, int64_t low, int64_t high) const;
  std::optional<double> Number(const std::string& key, double low, double high) const;
  std::optional<bool> Bool(const std::string& key) const;
  std::optional<std::string> String(const std::string& key) const;
  // An array of integers or bools; one number is an array of one.
  std::optional<std::vector<int64_t>> Ints(const std::string& key, int64_t low, int64_t high) const;

  [[noreturn]] void Fail(const std::string& key, const std::string& expected) const;

 private:
  const GgufValue* Find(const std::string& key) const;
  const GgufFile& gguf_;
  std::string prefix_;
  mutable std::set<std::string> asked_;
};

// Whether llama.cpp reads yarn_beta_fast and yarn_beta_slow of this architecture; of all others it
// takes 32 and 1, although its converter writes the keys.
bool LlamaCppReadsBetas(std::string_view architecture);
// Architectures that llama.cpp reads and computes as DeepSeek's.
bool IsDeepseekGguf(std::string_view architecture);
// mscale_all_dim of a yarn_log_multiplier in their files, which hold a tenth of it as float32; the
// number meant has few digits.
double LatentMscale(double log_multiplier);
// Whether llama.cpp rotates a Baichuan of so many layers; false: it has ALiBi; absent: neither.
std::optional<bool> BaichuanRotates(int64_t layers);

}  // namespace ropewalk::internal
