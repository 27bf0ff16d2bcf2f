#include "cli/server_http.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "ropewalk/base/error.h"

#ifdef ROPEWALK_HAVE_HTTP
#include <httplib.h>

#include <chrono>
#include <regex>

namespace ropewalk::cli {

struct HttpClient::Connection {
  explicit Connection(const std::string& host) : client(host) {}
  httplib::Client client;
};

namespace {

constexpr int64_t kConnectSeconds = 20;  // until a server that is there has answered the call

// What went wrong, and what to do.
std::string Reason(httplib::Error error, int64_t timeout_seconds, bool late) {
  if (late) {
    return fmt::format("no whole answer within {} s; --timeout gives it longer", timeout_seconds);
  }
  switch (error) {
    case httplib::Error::Connection:
      return "no connection: is a server running there?";
    case httplib::Error::ConnectionTimeout:
      return fmt::format("no connection within {} s", kConnectSeconds);
    case httplib::Error::Read:
    case httplib::Error::Write:
      return "the connection broke before the answer was whole, or it is no HTTP";
    case httplib::Error::SSLConnection:
    case httplib::Error::SSLLoadingCerts:
    case httplib::Error::SSLServerVerification:
      return "no TLS connection, or a certificate that is not trusted here";
    default:
      return httplib::to_string(error);
  }
}

}  // namespace

HttpClient::HttpClient(const std::string& url, const std::string& key, int64_t timeout_seconds)
    : key_(key), timeout_seconds_(timeout_seconds) {
  static const std::regex kForm(
      R"(^(?:(https?)://)?((?:[^/?#@:\[\]\s]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?)((?:/[^/?#\s]+)*)/*$)");
  std::smatch part;
  if (!std::regex_match(url, part, kForm)) {
    throw UsageError("URL: expected http://HOST:PORT or https://HOST, got '" + url + "'");
  }
  const std::string scheme = part[1].matched ? part[1].str() : "http";
  const std::string host = scheme + "://" + part[2].str();
  prefix_ = part[3].str();
  if (prefix_.ends_with("/v1")) prefix_.resize(prefix_.size() - 3);
  url_ = host + prefix_;
  connection_ = std::make_unique<Connection>(host);
  httplib::Client& client = connection_->client;
  if (!client.is_valid()) throw UsageError("URL: '" + url + "' names no host");
  client.set_connection_timeout(std::chrono::seconds(kConnectSeconds));
  client.set_read_timeout(std::chrono::seconds(timeout_seconds));
  client.set_write_timeout(std::chrono::seconds(timeout_seconds));
  client.set_keep_alive(true);
}

HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::Send(const std::string& path, const std::string& body,
                            int64_t most_bytes) const {
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::steady_clock::now() - begin >= std::chrono::seconds(timeout_seconds_);
  };
  HttpAnswer answer;
  bool large = false;
  httplib::Request request;
  request.method = body.empty() ? "GET" : "POST";
  request.path = prefix_ + path;
  if (!body.empty()) request.set_header("Content-Type", "application/json");
  if (!key_.empty()) request.set_header("Authorization", "Bearer " + key_);
  request.body = body;
  request.content_receiver = [&](const char* data, std::size_t size, uint64_t, uint64_t) {
    large = static_cast<int64_t>(answer.body.size() + size) > most_bytes;
    if (large || late()) return false;
    answer.body.append(data, size);
    return true;
  };
  const httplib::Result result = connection_->client.send(request);
  if (large) {
    throw Error(ErrorCode::kIo, fmt::format("{}{}: the answer has more than the {} bytes that one "
                                            "to this request can need",
                                            url_, path, most_bytes));
  }
  if (!result) {
    throw Error(ErrorCode::kIo, fmt::format("{}{}: {}", url_, path,
                                            Reason(result.error(), timeout_seconds_, late())));
  }
  answer.status = result->status;
  return answer;
}

}  // namespace ropewalk::cli

#else

namespace ropewalk::cli {

struct HttpClient::Connection {};

HttpClient::HttpClient(const std::string&, const std::string&, int64_t) {
  throw Error(ErrorCode::kUnsupported,
              "verify: this program is built without an HTTP client, as the Python package's is; "
              "the native program has one (README.md)");
}
HttpClient::~HttpClient() = default;
HttpAnswer HttpClient::Send(const std::string&, const std::string&, int64_t) const { return {}; }

}  // namespace ropewalk::cli

#endif
