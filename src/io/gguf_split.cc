// Models split into several GGUF files (llama.cpp's gguf-split): NAME-00001-of-00003.gguf and so
// on, each a whole GGUF file. The first has the metadata; all have split.no, split.count and
// split.tensors.count.
#include <fmt/format.h>

#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/fail.h"
#include "src/io/gguf_file.h"

namespace ropewalk {
namespace {

using internal::Fail;
using internal::Quote;

constexpr char kNo[] = "split.no", kCount[] = "split.count", kTensors[] = "split.tensors.count";
constexpr int64_t kMaxShards = 99999;  // five digits

int64_t SplitKey(const GgufFile& shard, const char* key) {
  const auto it = shard.metadata.find(key);
  const std::string& file = shard.file->path();
  if (it == shard.metadata.end()) {
    Fail(file, fmt::format("key '{}' is missing; every shard of a split model has it", key));
  }
  try {
    return it->second.AsInt(key);
  } catch (const Error& e) {
    Fail(file, e.what());
  }
}

std::string ShardPath(const std::string& prefix, int64_t number, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

// What stands in front of "-00002-of-00003.gguf".
std::string PrefixOf(const GgufFile& shard, int64_t number, int64_t count) {
  const std::string& path = shard.file->path();
  const std::string ending = ShardPath("", number, count);
  if (!path.ends_with(ending)) {
    Fail(path,
         fmt::format("its keys say that it is shard {} of {}, so its name has to end in '{}'; "
                     "give it back its name, or merge the shards with gguf-split --merge",
                     number, count, ending));
  }
  return path.substr(0, path.size() - ending.size());
}

// `shard` says the same as `first` wherever both say something, but for its own number.
void CheckBelongs(const GgufFile& first, const GgufFile& shard, int64_t number) {
  const std::string& path = shard.file->path();
  if (const int64_t no = SplitKey(shard, kNo); no != number - 1) {
    Fail(path, fmt::format("its name says shard {}, its key '{}' says {}, where {} was expected",
                           number, kNo, no, number - 1));
  }
  SplitKey(shard, kCount);
  SplitKey(shard, kTensors);
  for (const auto& [key, value] : shard.metadata) {
    const auto it = first.metadata.find(key);
    if (key == kNo || it == first.metadata.end() || it->second.value == value.value) continue;
    Fail(path, fmt::format("key {} differs from that of {}: they are shards of two models",
                           Quote(key), first.file->path()));
  }
}

void Merge(GgufFile& all, GgufFile&& shard) {
  for (auto& [name, weight] : shard.tensors) {
    const std::string path = weight.file->path();
    const auto [slot, inserted] = all.tensors.emplace(name, std::move(weight));
    if (!inserted) {
      Fail(path, fmt::format("tensor {} is in {} as well", Quote(name), slot->second.file->path()));
    }
  }
}

GgufFile OpenShards(const GgufFile& given, int64_t count) {
  const std::string& path = given.file->path();
  if (count > kMaxShards) {
    Fail(path, fmt::format("key '{}' is {}; at most {} expected", kCount, count, kMaxShards));
  }
  const int64_t given_no = SplitKey(given, kNo);
  if (given_no < 0 || given_no >= count) {
    Fail(path, fmt::format("key '{}' is {}; 0 to {} expected", kNo, given_no, count - 1));
  }
  const std::string prefix = PrefixOf(given, given_no + 1, count);
  const auto open = [&](int64_t number) {
    const std::string shard = ShardPath(prefix, number, count);
    std::error_code error;
    if (!std::filesystem::exists(shard, error)) {
      throw Error(ErrorCode::kIo, fmt::format("{}: shard {} of {} is missing; it belongs beside {}",
                                              shard, number, count, path));
    }
    return internal::ParseGguf(shard);
  };
  GgufFile all = open(1);
  CheckBelongs(all, all, 1);
  for (int64_t number = 2; number <= count; ++number) {
    GgufFile shard = open(number);
    CheckBelongs(all, shard, number);
    Merge(all, std::move(shard));
  }
  const int64_t expected = SplitKey(all, kTensors);
  if (static_cast<int64_t>(all.tensors.size()) != expected) {
    Fail(all.file->path(), fmt::format("key '{}' is {}, but the {} shards hold {} tensors",
                                       kTensors, expected, count, all.tensors.size()));
  }
  return all;
}

}  // namespace

GgufFile OpenGguf(const std::string& path) {
  GgufFile file = internal::ParseGguf(path);
  if (!file.metadata.contains(kCount)) return file;
  const int64_t count = SplitKey(file, kCount);
  return count > 1 ? OpenShards(file, count) : file;
}

}  // namespace ropewalk
