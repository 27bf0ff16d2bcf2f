#include "src/eval/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "src/io/files.h"

namespace ropewalk {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string FirstLine(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// When a process began, in ticks since the machine did; 0: there is no such process, or it has ended and
// its parent does not know yet.
int64_t StartOf(int64_t pid) {
  const std::string stat = FirstLine(fmt::format("/proc/{}/stat", pid));
  std::size_t at = stat.rfind(')');  // its name may hold anything
  if (at == std::string::npos || stat.compare(at, 3, ") Z") == 0) return 0;
  constexpr int kBehindName = 20;  // proc(5): starttime is field 22
  for (int field = 0; field < kBehindName && at != std::string::npos; ++field) {
    at = stat.find(' ', at + 1);
  }
  return at == std::string::npos ? 0 : std::strtoll(stat.c_str() + at, nullptr, 10);
}

LeaseHolder ThisProcess() {
  LeaseHolder self;
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) self.host = host;
  std::error_code none;
  const std::string ids = fs::read_symlink("/proc/self/ns/pid", none).string();
  const std::string run = FirstLine("/proc/sys/kernel/random/boot_id");
  if (!ids.empty() && !run.empty()) self.kernel = run + " " + ids;
  self.pid = ::getpid();
  self.started = StartOf(self.pid);
  return self;
}

Json JsonOf(const LeaseHolder& h) {
  return {{"shard", h.shard},   {"host", h.host},       {"process", h.pid},
          {"kernel", h.kernel}, {"started", h.started}, {"asked", h.asked}};
}

// Anything may stand in the file.
LeaseHolder HolderOf(const std::string& text) {
  LeaseHolder holder;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return holder;
  const auto word = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  };
  return {.shard = word("shard"),
          .asked = word("asked"),
          .host = word("host"),
          .kernel = word("kernel"),
          .pid = number("process"),
          .started = number("started")};
}

enum class Life : uint8_t { kUnknown, kAlive, kDead };

// Known of processes of this machine alone.
Life LifeOf(const LeaseHolder& holder, const LeaseHolder& self) {
  if (holder.kernel.empty() || holder.kernel != self.kernel || holder.pid < 1)
    return Life::kUnknown;
  return StartOf(holder.pid) == holder.started ? Life::kAlive : Life::kDead;
}

std::string TextOf(int fd) {
  constexpr std::size_t kMost = 4096;
  std::string text(kMost, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

}  // namespace

std::string LeaseHolder::Text() const {
  if (shard.empty()) return "another process";
  return fmt::format("shard {} ({}, process {})", shard, host, pid);
}

LeaseFolder::LeaseFolder(const std::string& folder, const Shard& shard, std::string asked,
                         bool only_one, std::function<void(const std::string&)> message)
    : folder_(folder + "/leases"),
      shard_(shard),
      self_(ThisProcess()),
      only_one_(only_one),
      message_(std::move(message)) {
  self_.shard = shard.Name();
  self_.asked = std::move(asked);
  beat_ = std::thread([this] { Beat(); });
}

LeaseFolder::~LeaseFolder() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  end_.notify_all();
  beat_.join();
  ::rmdir(folder_.c_str());  // where it is empty
}

// A file system tells every other machine of a new time. What was removed meanwhile is an error that
// does not matter.
void LeaseFolder::Beat() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> beat(shard_.beat_seconds);
  while (!end_.wait_for(lock, beat, [this] { return ends_; })) {
    for (const int fd : held_) ::futimens(fd, nullptr);
  }
}

std::string LeaseFolder::PathOf(const std::string& name, int64_t generation) const {
  return fmt::format("{}/{}.{}", folder_, name, generation);
}

// -1: it is there.
int LeaseFolder::Create(const std::string& path) const {
  for (int attempt = 0;; ++attempt) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    const int reason = errno;
    if (reason == EEXIST) return -1;
    if (reason == EINTR) continue;
    // The last one to leave removes the folder.
    constexpr int kAttempts = 20;
    if (reason == ENOENT && attempt < kAttempts) {
      std::error_code ignored;
      fs::create_directories(folder_, ignored);
      continue;
    }
    throw Error(ErrorCode::kIo, fmt::format("cannot create {}: {}", path, std::strerror(reason)));
  }
}

std::optional<bool> LeaseFolder::IsGivenUp(const std::string& path, LeaseHolder& holder) {
  struct stat info {};
  // To open it makes NFS ask the server for its time.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const bool known = fd >= 0 && ::fstat(fd, &info) == 0;
  if (known && S_ISREG(info.st_mode)) holder = HolderOf(TextOf(fd));
  if (fd >= 0) ::close(fd);
  if (!known && ::lstat(path.c_str(), &info) != 0) {
    seen_.erase(path);
    return {};
  }
  const Life life = LifeOf(holder, self_);
  if (life == Life::kDead) return true;
  if (life == Life::kUnknown && only_one_ && holder.shard == self_.shard) return true;
  const Signature now{info.st_dev, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                      info.st_size};
  const auto time = std::chrono::steady_clock::now();
  const auto [seen, first] = seen_.try_emplace(path, Seen{now, time});
  if (!first && seen->second.signature != now) seen->second = {now, time, true};
  holder.alive = life == Life::kAlive || seen->second.renewed;
  return time - seen->second.since >= std::chrono::duration<double>(shard_.stale_seconds);
}

LeaseFolder::Lease LeaseFolder::Claim(const std::string& name) {
  std::string before;
  for (int64_t generation = 1;;) {
    const std::string path = PathOf(name, generation);
    const int fd = Create(path);
    if (fd < 0) {
      LeaseHolder holder;
      const std::optional<bool> given_up = IsGivenUp(path, holder);
      if (!given_up) continue;  // it was given back just now
      holder_ = holder.Text();
      if (!*given_up) return nullptr;
      before = holder_;
      ++generation;
      continue;
    }
    const std::string text = JsonOf(self_).dump(-1, ' ', false, Json::error_handler_t::replace);
    // For people, and to know a process that is dead at once: on a full disk it is done without.
    [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
    {
      const std::lock_guard lock(mutex_);
      held_.push_back(fd);
    }
    if (!before.empty() && message_) message_("what " + before + " had begun is taken over");
    return Lease(new Held{name, generation, fd}, [this](Held* held) {
      GiveBack(*held);
      delete held;
    });
  }
}

// From the first on: who finds the first place free in between begins there.
void LeaseFolder::GiveBack(const Held& held) {
  struct stat mine {
  }, there{};
  const std::string path = PathOf(held.name, held.generation);
  const bool ours = ::fstat(held.fd, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 &&
                    mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  for (int64_t g = 1; ours && g <= held.generation; ++g) {
    ::unlink(PathOf(held.name, g).c_str());
    seen_.erase(PathOf(held.name, g));
  }
  const std::lock_guard lock(mutex_);
  std::erase(held_, held.fd);
  ::close(held.fd);
}

LeaseFolder::Lease LeaseFolder::Wait(const std::string& name, const WaitFn& waiting,
                                     double seconds) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  for (Seconds pause(0.02);; pause = std::min(pause * 1.5, Seconds(1))) {
    if (Lease lease = Claim(name)) return lease;
    if (Seconds(std::chrono::steady_clock::now() - begin).count() > seconds) return nullptr;
    if (waiting && !waiting(holder_)) throw Interrupted();
    std::this_thread::sleep_for(pause);
  }
}

std::vector<LeaseHolder> LeaseFolder::Holders(const std::string& begin) {
  std::vector<LeaseHolder> holders;
  for (const std::string& name : NamesIn(folder_)) {
    if (!name.starts_with(begin)) continue;
    LeaseHolder holder;
    const std::optional<bool> given_up = IsGivenUp(folder_ + "/" + name, holder);
    if (given_up && !*given_up) holders.push_back(std::move(holder));
  }
  return holders;
}

}  // namespace internal

void OneAfterTheOther(const std::string& folder, const Shard& shard, const std::string& name,
                      const WaitFn& waiting, const std::function<void()>& work) {
  internal::LeaseFolder leases(folder, shard, "", false);
  const internal::LeaseFolder::Lease lease = leases.Wait(name, waiting);
  work();
}

}  // namespace ropewalk
