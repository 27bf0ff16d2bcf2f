#include "ropewalk/ranks/ring.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

// Queries of a call, so that transfers go on between calls and what a call prepares stays small.
constexpr int64_t kPieceTokens = 512;

std::vector<int64_t> Rising(int64_t first, int64_t count) {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// Where the chunks of `chunk` positions begin, from number `first` to `last`, among the positions of a
// run: the first at 0.
std::vector<int64_t> ChunkStarts(int64_t chunk, int64_t first, int64_t last, const TokenRun& run) {
  std::vector<int64_t> starts;
  for (int64_t c = first; c <= last; ++c) {
    starts.push_back(c == first ? 0 : std::clamp<int64_t>(c * chunk - run.first, 0, run.tokens()));
  }
  return starts;
}

// Whether any of the queries sees any of the keys.
bool Meets(const AttentionArgs& args, int64_t chunk, const TokenRun& queries,
           const TokenRun& keys) {
  if (queries.tokens() == 0 || keys.tokens() == 0 || keys.first >= queries.end) return false;
  if (args.window_tokens > 0 && keys.end - 1 <= queries.first - args.window_tokens) return false;
  return chunk == 0 || (keys.end - 1) / chunk >= queries.first / chunk;
}

TensorView Rows(TensorView view, int64_t first, int64_t count) {
  view.data = static_cast<float*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

bool Contextual(const AttentionArgs& args) {
  const ScoreForm* form = args.prepared != nullptr ? &args.prepared->form() : args.form;
  const auto* running = form == nullptr ? nullptr : std::get_if<RunningForm>(form);
  return running != nullptr && running->kind == RunningForm::Kind::kContextual;
}

}  // namespace

Deal::Deal(int64_t tokens, int ranks) : tokens_(tokens), ranks_(ranks) {
  if (tokens < 1 || ranks < 1) {
    throw Error(ErrorCode::kInvalidArgument, "Deal: expected tokens and ranks of 1 or more, got " +
                                                 std::to_string(tokens) + " and " +
                                                 std::to_string(ranks));
  }
  const int64_t unit = 2 * ranks * kRotatedBlock;
  run_tokens_ = (tokens + unit - 1) / unit * kRotatedBlock;
}

TokenRun Deal::Run(int index) const {
  return {std::min(tokens_, index * run_tokens_), std::min(tokens_, (index + 1) * run_tokens_)};
}

// Queries and keys of one call.
struct Ring::Part {
  int64_t first = 0, tokens = 0;  // among the queries of the run
  bool entropy = false;           // of any of them
  AttentionArgs args;
};

Ring::Ring(RankGroup& group, const Deal& deal, const RingSizes& sizes)
    : group_(group), deal_(deal), sizes_(sizes) {
  for (RingBlock* block : {&here_, &coming_}) {
    if (block == &coming_ && group.size() == 1) continue;
    for (KvCache& cache : block->cache) {
      cache = KvCache(sizes.kv_heads, sizes.key_dim, deal.run_tokens(), sizes.kv, sizes.value_dim);
    }
    for (std::vector<double>& sums : block->gate_sums) {
      sums.resize(static_cast<size_t>(deal.run_tokens() * sizes.gate_heads));
    }
  }
}

int64_t Ring::bytes() const {
  int64_t bytes = 0;
  for (const RingBlock* block : {&here_, &coming_}) {
    for (const KvCache& cache : block->cache) bytes += cache.bytes();
    for (const auto& sums : block->gate_sums) {
      bytes += static_cast<int64_t>(sums.size() * sizeof(double));
    }
  }
  return bytes;
}

RingBlock& Ring::Begin() {
  here_.owner = group_.rank();
  for (KvCache& cache : here_.cache) cache.Truncate(0);
  return here_;
}

void Ring::SumGates(const std::array<std::vector<float>, 2>& log_gates) {
  const auto heads = static_cast<size_t>(sizes_.gate_heads);
  std::vector<double> own(2 * heads), all(own.size() * static_cast<size_t>(group_.size()));
  for (size_t run = 0; run < 2; ++run) {
    const std::vector<float>& logs = log_gates[run];
    double* total = own.data() + run * heads;
    for (size_t i = 0; i < logs.size(); ++i) {
      total[i % heads] += logs[i];
      here_.gate_sums[run][i] = total[i % heads];
    }
  }
  group_.GatherAll(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  std::vector<double> before(heads);
  for (int index = 0; index < deal_.runs(); ++index) {
    const int owner = std::min(index, deal_.runs() - 1 - index);
    const size_t run = index == owner ? 0 : 1;
    if (owner == group_.rank()) {
      for (size_t i = 0; i < log_gates[run].size(); ++i) {
        here_.gate_sums[run][i] += before[i % heads];
      }
    }
    const double* total = all.data() + (2 * static_cast<size_t>(owner) + run) * heads;
    for (size_t h = 0; h < heads; ++h) before[h] += total[h];
  }
}

// Calls visit(block) with the block of each rank, the next one on its way meanwhile. `home`: this
// rank's block is back in the end.
template <class Visit>
void Ring::GoRound(bool home, const Visit& visit) {
  const int size = group_.size();
  for (int step = 0; step < size; ++step) {
    const bool moves = size > 1 && (home || step + 1 < size);
    if (moves) {
      for (size_t run = 0; run < 2; ++run) {
        const auto out = here_.cache[run].Memory(), in = coming_.cache[run].Memory();
        for (size_t i = 0; i < out.size(); ++i) group_.BeginShift(out[i], in[i]);
        if (sizes_.gate_heads == 0) continue;
        group_.BeginShift(std::as_bytes(std::span(here_.gate_sums[run])),
                          std::as_writable_bytes(std::span(coming_.gate_sums[run])));
      }
    }
    visit(here_);
    if (!moves) continue;
    group_.FinishShifts();
    coming_.owner = (here_.owner + size - 1) % size;
    for (size_t run = 0; run < 2; ++run) {
      coming_.cache[run].SetTokens(deal_.Run(deal_.RunsOf(coming_.owner)[run]).tokens());
    }
    std::swap(here_, coming_);
  }
}

// Calls use(part) for pieces of the queries that see keys of the block's run.
template <class Use>
void Ring::ForParts(const AttentionArgs& args, int64_t chunk, const RingBlock& block, int run,
                    const RingQueries& queries, const Use& use) {
  const TokenRun keys = deal_.Run(deal_.RunsOf(block.owner)[static_cast<size_t>(run)]);
  const int64_t all = queries.q.rank == 3 ? queries.q.shape[0] : 0;
  const std::vector<int64_t> key_positions = Rising(keys.first, keys.tokens());
  for (int64_t first = 0; first < all; first += kPieceTokens) {
    const int64_t tokens = std::min(kPieceTokens, all - first);
    const TokenRun own = {queries.first_position + first, queries.first_position + first + tokens};
    if (!Meets(args, chunk, own, keys)) continue;
    const std::vector<int64_t> query_positions = Rising(own.first, tokens);
    const auto asked = std::lower_bound(queries.entropy.begin(), queries.entropy.end(), own.first);
    Part part{first, tokens, asked != queries.entropy.end() && *asked < own.end, args};
    std::vector<int64_t> key_starts, query_starts;
    if (chunk > 0) {
      const int64_t lowest = std::min(own.first, keys.first) / chunk;
      const int64_t highest = (std::max(own.end, keys.end) - 1) / chunk;
      key_starts = ChunkStarts(chunk, lowest, highest, keys);
      query_starts = ChunkStarts(chunk, lowest, highest, own);
    }
    AttentionArgs& a = part.args;
    a.q = Rows(queries.q, first, tokens);
    a.cache = &block.cache[static_cast<size_t>(run)];
    a.query_positions = query_positions;
    a.key_positions = key_positions;
    a.document_starts = key_starts;
    a.query_document_starts = query_starts;
    if (!queries.temperatures.empty()) {
      a.temperatures =
          queries.temperatures.subspan(static_cast<size_t>(first), static_cast<size_t>(tokens));
    }
    if (sizes_.gate_heads > 0) {
      const auto heads = static_cast<size_t>(sizes_.gate_heads);
      a.gate_sums.queries = queries.gate_sums.subspan(static_cast<size_t>(first) * heads,
                                                      static_cast<size_t>(tokens) * heads);
      a.gate_sums.keys = std::span(block.gate_sums[static_cast<size_t>(run)])
                             .first(static_cast<size_t>(keys.tokens()) * heads);
    }
    use(part);
    group_.Progress();
  }
}

void Ring::Attend(const AttentionArgs& args, int64_t chunk_tokens,
                  const std::array<RingQueries, 2>& queries, std::array<AttentionSums, 2>& sums) {
  if (Contextual(args)) return AttendContextual(args, chunk_tokens, queries, sums);
  GoRound(false, [&](const RingBlock& block) {
    for (size_t mine = 0; mine < 2; ++mine) {
      for (int run = 0; run < 2; ++run) {
        ForParts(args, chunk_tokens, block, run, queries[mine], [&](const Part& part) {
          AttendPart(part.args, sums[mine], part.first, part.entropy);
        });
      }
    }
  });
}

// CoPE: the position of a key is the sum of the gates of all nearer keys, so these are summed run by
// run in a first round, and a second one scores.
void Ring::AttendContextual(const AttentionArgs& args, int64_t chunk_tokens,
                            const std::array<RingQueries, 2>& queries,
                            std::array<AttentionSums, 2>& sums) {
  const auto runs = static_cast<size_t>(deal_.runs());
  std::array<std::vector<std::vector<double>>, 2> gates;  // [runs][tokens, heads]
  std::array<size_t, 2> heads{};
  for (size_t mine = 0; mine < 2; ++mine) {
    const TensorView& q = queries[mine].q;
    heads[mine] = q.rank == 3 ? static_cast<size_t>(q.shape[1]) : 0;
    const size_t each = q.rank == 3 ? static_cast<size_t>(q.shape[0]) * heads[mine] : 0;
    gates[mine].assign(runs, std::vector<double>(each));
  }
  const auto round = [&](bool home, const auto& use) {
    GoRound(home, [&](const RingBlock& block) {
      for (size_t mine = 0; mine < 2; ++mine) {
        for (int run = 0; run < 2; ++run) {
          const auto index =
              static_cast<size_t>(deal_.RunsOf(block.owner)[static_cast<size_t>(run)]);
          ForParts(args, chunk_tokens, block, run, queries[mine], [&](Part& part) {
            use(part, mine,
                std::span(gates[mine][index])
                    .subspan(static_cast<size_t>(part.first) * heads[mine],
                             static_cast<size_t>(part.tokens) * heads[mine]));
          });
        }
      }
    });
  };
  round(/*home=*/true, [&](Part& part, size_t, std::span<double> own) {
    AttentionSums unused(part.tokens, part.args.q.shape[1], sizes_.value_dim);
    part.args.contextual_sums.all = own;
    AttendPart(part.args, unused, 0);
  });
  for (auto& of_run : gates) {  // sums of a run to those of all nearer runs
    std::vector<double> nearer(of_run[0].size());
    for (size_t index = runs; index-- > 0;) {
      for (size_t i = 0; i < nearer.size(); ++i) {
        nearer[i] += std::exchange(of_run[index][i], nearer[i]);
      }
    }
  }
  round(/*home=*/false, [&](Part& part, size_t mine, std::span<double> nearer) {
    part.args.contextual_sums.nearer = nearer;
    AttendPart(part.args, sums[mine], part.first, part.entropy);
  });
}

}  // namespace ropewalk
