// What a server answers to `ropewalk verify`: the input is cut at zero bytes into answers, which come one after the other and then
// again from the first. The first byte of each chooses whether the server refuses.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/server.h"
#include "ropewalk/base/error.h"

namespace {

std::vector<std::string> g_answers;
std::size_t g_next = 0;

}  // namespace

namespace ropewalk::cli {

// In the place of cli/server_http.cc.
struct HttpClient::Connection {};
HttpClient::HttpClient(const std::string& url, const std::string& key, int64_t timeout_seconds)
    : url_(url), key_(key), timeout_seconds_(timeout_seconds) {}
HttpClient::~HttpClient() = default;
HttpAnswer HttpClient::Send(const std::string& /*path*/, const std::string& /*body*/,
                            int64_t /*most_bytes*/) const {
  const std::string& answer = g_answers[g_next++ % g_answers.size()];
  if (answer.starts_with('!')) return {.status = 400, .body = answer.substr(1)};
  return {.status = 200, .body = answer};
}

}  // namespace ropewalk::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  g_answers.assign(1, "");
  g_next = 0;
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      g_answers.emplace_back();
    } else {
      g_answers.back() += static_cast<char>(data[i]);
    }
  }
  const std::vector<int32_t> prompt = {1, 5, 7};
  const auto refusing = [](const auto& ask) {
    try {
      ask();
    } catch (const ropewalk::Error&) {  // anything else that is thrown is a finding
    }
  };
  ropewalk::cli::ModelServer server("http://localhost", 1, 100);
  refusing([&] { server.Open("", std::span(prompt).first(2)); });
  refusing([&] { server.Echo(prompt); });
  refusing([&] { server.Next(prompt); });
  return 0;
}
