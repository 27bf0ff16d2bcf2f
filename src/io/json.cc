#include "src/io/json.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

// Input iterator that tells the handler how far the parser has read.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, const char** cursor) : at_(at), cursor_(cursor) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    *cursor_ = ++at_;
    return *this;
  }
  TrackingIterator operator++(int) {
    TrackingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TrackingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TrackingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** cursor_;
};

// Builds the document while it refuses what nlohmann's own builder would accept: deep nesting and
// repeated keys (of which it would silently keep the last).
class Builder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    const auto [slot, inserted] = open_.back()->emplace(name, nullptr);
    slot_ = &*slot;
    return inserted || Fail("key " + Quote(name) + " twice in one object");
  }
  bool parse_error(std::size_t, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    return Fail("not valid JSON near " + Quote(last_token));
  }

  json document;
  std::string error;

 private:
  bool Fail(std::string message) {
    error = std::move(message);
    return false;
  }
  bool Add(json&& value) { return Place(std::move(value)) != nullptr; }
  json* Place(json&& value) {
    if (open_.empty()) {
      document = std::move(value);
      return &document;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool Open(json&& empty) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    open_.push_back(Place(std::move(empty)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  // A container here is the last child of the one before it, so growth of the parent cannot move
  // it.
  std::vector<json*> open_;
  json* slot_ = nullptr;
};

}  // namespace

json ParseJson(std::string_view text, const std::string& file) {
  const char* cursor = text.data();
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: byte {}: {}", file, cursor - text.data(), what));
  };
  // The lexer takes a NUL for the end of input and would ignore what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    cursor += nul;
    fail("NUL inside JSON");
  }
  Builder builder;
  const TrackingIterator begin(text.data(), &cursor);
  const TrackingIterator end(text.data() + text.size(), &cursor);
  if (!json::sax_parse(begin, end, &builder)) fail(builder.error);
  return std::move(builder.document);
}

nlohmann::ordered_json ParseOrderedObject(std::string_view text, const std::string& file) {
  if (!ParseJson(text, file).is_object()) {  // refuses what the lenient parser below would take
    throw Error(ErrorCode::kInvalidFile, file + ": expected a JSON object");
  }
  return nlohmann::ordered_json::parse(text);
}

std::string DumpJson(const nlohmann::ordered_json& json, int indent, const std::string& what) {
  try {
    return json.dump(indent);
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidFile,
                what + ": a string in it is not valid UTF-8, which JSON cannot hold");
  }
}

}  // namespace ropewalk::internal
