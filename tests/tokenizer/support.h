// Files that tokenizer tests read and write.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/tokenizer/tokenizer.h"
#include "tests/support/message_of.h"

namespace ropewalk {

using test::MessageOf;

#ifndef ROPEWALK_TOKENIZER_GOLDENS
#define ROPEWALK_TOKENIZER_GOLDENS ROPEWALK_SOURCE_DIR "/tests/golden/tokenizer"
#endif

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline nlohmann::json ReadGolden(const std::string& name) {
  return nlohmann::json::parse(ReadFile(std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / name));
}

// The folder of data that is not in the repository, or empty.
inline std::filesystem::path TestData() {
  const char* path = std::getenv("ROPEWALK_TEST_DATA");
  return path == nullptr ? "" : path;
}

// A folder that goes away.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ropewalk_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// What is said of a folder with this tokenizer.json.
inline std::string LoadJson(const std::string& text) {
  const TempFolder folder;
  folder.Write("tokenizer.json", text);
  const std::string message = MessageOf([&] { LoadTokenizerFolder(folder.path()); });
  EXPECT_THAT(message, testing::HasSubstr("tokenizer.json"));
  return message;
}

// A change to a good file, and what the error has to say.
struct Case {
  const char* name;
  std::function<void(nlohmann::json*)> change;
  const char* expected;
};

}  // namespace ropewalk
