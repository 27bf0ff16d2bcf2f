#include "cli/write_proven.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/progress.h"
#include "cli/rows.h"
#include "ropewalk/base/error.h"
#include "ropewalk/convert/new_output.h"

namespace ropewalk::cli {
namespace {

std::atomic<bool> g_signalled{false};
sem_t g_wake;  // all that a handler may do is to post it

void OnSignal(int) {
  g_signalled = true;
  ::sem_post(&g_wake);
}

// While it lives, SIGINT, SIGTERM and SIGHUP remove a folder and end the program, from a thread
// that waits for them: writing, packing weights and computing logits do not have to ask again and
// again.
class RemoveOnSignal {
 public:
  explicit RemoveOnSignal(std::string folder) : folder_(std::move(folder)) {
    ::sem_init(&g_wake, 0, 0);
    thread_ = std::thread([this] { Wait(); });
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler == SIG_IGN) continue;  // as nohup wants it
      before_.emplace_back(signal, action);
      action = {};
      action.sa_handler = OnSignal;
      action.sa_flags = SA_RESTART;
      ::sigaction(signal, &action, nullptr);
    }
  }
  ~RemoveOnSignal() {
    if (g_signalled) WaitForTheEnd();
    for (const auto& [signal, action] : before_) ::sigaction(signal, &action, nullptr);
    ::sem_post(&g_wake);
    thread_.join();
  }
  RemoveOnSignal(const RemoveOnSignal&) = delete;
  RemoveOnSignal& operator=(const RemoveOnSignal&) = delete;

  enum class State { kWriting, kBusy, kNamed, kRemoving };

  // What `f` does is done whole, or not at all when the folder is being removed.
  template <class F>
  void Undisturbed(State after, F&& f) {
    State state = State::kWriting;
    if (!state_.compare_exchange_strong(state, State::kBusy)) WaitForTheEnd();
    try {
      f();
    } catch (...) {
      state_ = State::kWriting;
      throw;
    }
    state_ = after;
  }

 private:
  // What fails because its files go away is no error: the other thread ends the program.
  static void WaitForTheEnd() {
    for (;;) ::pause();
  }
  void Wait() {
    while (::sem_wait(&g_wake) != 0) {
    }
    if (!g_signalled) return;
    State state = State::kWriting;
    while (!state_.compare_exchange_strong(state, State::kRemoving) && state == State::kBusy) {
      ::usleep(1000);
      state = State::kWriting;
    }
    Remove();
    Message(state == State::kNamed ? "ropewalk: interrupted; the new model is complete"
                                   : "ropewalk: interrupted; what was written is removed");
    ::_exit(130);
  }
  void Remove() {
    std::error_code error;
    // The other thread may make one more file meanwhile.
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::filesystem::remove_all(folder_, error);
      if (!std::filesystem::exists(folder_, error)) return;
    }
  }

  std::string folder_;
  std::vector<std::pair<int, struct sigaction>> before_;
  std::atomic<State> state_{State::kWriting};
  std::thread thread_;
};

}  // namespace

void WriteProven(const std::string& output,
                 const std::function<void(const std::string& path)>& write_and_prove) {
  RemoveOnSignal guard(NewOutput::TemporaryFolder(output));
  using State = RemoveOnSignal::State;
  std::optional<NewOutput> out;
  guard.Undisturbed(State::kWriting, [&] { out.emplace(output); });
  try {
    write_and_prove(out->written());
  } catch (const Error& e) {  // the user knows it by the name that it would have got
    throw Error(e.code(), Replaced(e.what(), out->written(), output));
  }
  guard.Undisturbed(State::kNamed, [&] { out->Commit(); });
}

}  // namespace ropewalk::cli
