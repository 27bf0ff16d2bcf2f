#include "src/rotary/positions/check.h"

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

std::string Number(int64_t n) { return std::to_string(n); }

// What is checked: the positions of a call, against a table or none.
struct Check {
  const Positions& positions;
  int64_t axes, batch, tokens;
  const CosSinTable* table;
  bool reads;  // lists lie in memory of the CPU

  bool Holds(int64_t position) const { return table == nullptr || table->Contains(position); }

  void Range(int64_t low, int64_t high, const std::string& whose) const {
    if (Holds(low) && Holds(high)) return;
    const int64_t bad = Holds(low) ? high : low;
    const std::string holds = table->count() == 0 ? "no positions"
                                                  : "positions " + Number(table->first()) + " to " +
                                                        Number(table->first() + table->count() - 1);
    Bad("position " + Number(bad) + " (" + whose + ") is outside the table, which holds " + holds +
        "; build or grow the table for the positions in use");
  }

  template <class I>
  void Each() const {
    const I* p = static_cast<const I*>(positions.data());
    const int64_t n = positions.size();
    if (n != axes * tokens && n != axes * tokens * batch) {
      Bad("positions: expected one per token" +
          (axes == 1 ? std::string() : " and axis, " + Number(axes) + " x") + ", " +
          Number(batch * tokens) + ", got " + Number(n));
    }
    if (!reads) return;
    I low = p[0];
    I high = p[0];
    for (int64_t i = 1; i < n; ++i) {
      low = std::min(low, p[i]);
      high = std::max(high, p[i]);
    }
    if (Holds(low) && Holds(high)) return;
    for (int64_t i = 0; i < n; ++i) Range(p[i], p[i], "of token " + Number(i % (n / axes)));
  }

  void Start(int64_t start, int64_t sequence) const {
    // start + tokens - 1 could overflow, so it is looked at only if the start is in the table.
    if (table == nullptr) {
      int64_t last = 0;
      if (!__builtin_add_overflow(start, tokens - 1, &last)) return;
      Bad("positions: the last token of sequence " + Number(sequence) + " overflows");
    }
    if (Holds(start) && Holds(start + tokens - 1)) return;
    Range(start, start, "the start of sequence " + Number(sequence));
    Range(start + tokens - 1, start + tokens - 1, "the last token of sequence " + Number(sequence));
  }

  const int64_t* OneASequence(const char* what) const {
    if (positions.size() != batch) {
      Bad(std::string("positions: expected one ") + what + " a sequence, " + Number(batch) +
          ", got " + Number(positions.size()));
    }
    return static_cast<const int64_t*>(positions.data());
  }

  void LeftPadded() const {
    const int64_t* pads = OneASequence("pad count");
    if (!reads) return;
    for (int64_t b = 0; b < batch; ++b) {
      if (pads[b] < 0 || pads[b] > tokens) {
        Bad("positions: sequence " + Number(b) + " has " + Number(pads[b]) + " pads among " +
            Number(tokens) + " tokens");
      }
      const int64_t last = std::max<int64_t>(0, tokens - 1 - pads[b]);
      Range(0, last, "of left-padded sequence " + Number(b));
    }
  }

  void Packed() const {
    const int64_t* b = static_cast<const int64_t*>(positions.data());
    const int64_t n = positions.size();
    if (n >= 2 && !reads) return;
    if (n < 2 || b[0] != 0 || b[n - 1] != batch * tokens) {
      Bad("positions: packed boundaries must go from 0 to the number of tokens, " +
          Number(batch * tokens));
    }
    int64_t longest = 0;
    for (int64_t i = 1; i < n; ++i) {
      if (b[i] < b[i - 1]) Bad("positions: packed boundaries decrease at " + Number(i));
      longest = std::max(longest, b[i] - b[i - 1]);
    }
    Range(0, 0, "the first of a packed sequence");
    Range(longest - 1, longest - 1, "the last of the longest packed sequence");
  }
};

}  // namespace

void CheckPositions(const Positions& positions, int64_t axes, int64_t batch, int64_t tokens,
                    const CosSinTable* table, Device device) {
  const bool text =
      positions.kind() != Positions::Kind::kEach32 && positions.kind() != Positions::Kind::kEach64;
  if (table != nullptr && device == Device::kCpu && table->device() != device) {
    Bad("table: it lies on a GPU, and the tensors in memory of the CPU; build it with "
        "Device::kCpu");
  }
  const Check check{positions, positions.axes(), batch, tokens, table, device == Device::kCpu};
  if (positions.data() == nullptr && positions.kind() != Positions::Kind::kStart) {
    Bad("positions: expected one per token or per sequence, got none");
  }
  if (positions.axes() != axes && !text) {
    Bad("positions: the frequencies have " + Number(axes) + " axes, the positions " +
        Number(positions.axes()) + "; give a row of positions an axis");
  }
  switch (positions.kind()) {
    case Positions::Kind::kStart:
      return check.Start(positions.start(), 0);
    case Positions::Kind::kEach32:
      return check.Each<int32_t>();
    case Positions::Kind::kEach64:
      return check.Each<int64_t>();
    case Positions::Kind::kStarts: {
      const int64_t* starts = check.OneASequence("start");
      if (!check.reads) return;
      for (int64_t b = 0; b < batch; ++b) check.Start(starts[b], b);
      return;
    }
    case Positions::Kind::kLeftPadded:
      return check.LeftPadded();
    case Positions::Kind::kPacked:
      return check.Packed();
  }
}

}  // namespace ropewalk::internal
