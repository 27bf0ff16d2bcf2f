#include "src/attention/form.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/attention/kernel/backward_tile.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void RefuseForm(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Attention: " + message);
}

ContentColumns OrderColumns(const ContentForm& f) {
  ContentColumns c;
  c.first = f.first;
  c.table_heads = f.table_heads;
  c.column_of.resize(f.row_of.size());
  for (size_t x = f.row_of.size(); x-- > 0;) {
    if (c.row_of.empty() || c.row_of.back() != f.row_of[x]) c.row_of.push_back(f.row_of[x]);
    c.column_of[x] = static_cast<int32_t>(c.row_of.size()) - 1;
  }
  c.columns = static_cast<int64_t>(c.row_of.size());
  return c;
}

// The first key that query t sees, or its end: views of a distance map drop keys in between.
int64_t FirstSeen(const QueryRanges& ranges, const RotationRun& rotation, int64_t t) {
  if (rotation.begin.empty()) return ranges.begin[t];
  int64_t first = ranges.end[t];
  for (int v = 0; v < rotation.views; ++v) {
    const int64_t i = v * rotation.queries + t;
    if (rotation.begin[i] < rotation.end[i]) first = std::min(first, rotation.begin[i]);
  }
  return first;
}

// A DistanceForm or ContentForm, which has `columns` distances.
template <class Form>
void CheckKnownDistances(const char* name, const Form& f, int64_t columns,
                         const QueryRanges& ranges, const RotationRun& rotation) {
  if (f.repeats_ahead && f.repeats_behind) return;
  const auto distance = [&](int64_t t, int64_t j) {
    return ranges.consecutive ? ranges.base[t] - j
                              : ranges.query_positions[t] - ranges.key_positions[j];
  };
  const int64_t last = f.first + columns - 1;
  int64_t ahead = f.first, behind = last;
  for (int64_t t = 0; t < static_cast<int64_t>(ranges.end.size()); ++t) {
    const int64_t seen = FirstSeen(ranges, rotation, t), end = ranges.end[t];
    if (seen >= end) continue;
    if (!f.repeats_ahead) ahead = std::min(ahead, distance(t, end - 1));
    if (!f.repeats_behind) behind = std::max(behind, distance(t, seen));
  }
  if (ahead == f.first && behind == last) return;
  const int64_t lacks = behind > last ? behind : ahead;
  const bool causal = lacks < 0 && f.first == 0;
  RefuseForm(std::string(name) + ": knows distances " + std::to_string(f.first) + " to " +
             std::to_string(last) + ", and a query sees a key at distance " +
             std::to_string(lacks) + "; make it for that one: Lower" +
             (causal ? " of a bias that is not causal" : "") + " with a max_distance of " +
             std::to_string(std::abs(lacks)) + " or more");
}

// rows [table_heads, table_rows, head_dim] -> [table_heads, blocks, head_dim, 64]
AlignedBuffer<float> PackRows(const ContentColumns& c, int64_t table_rows, int64_t head_dim,
                              const std::vector<float>& rows) {
  if (rows.empty()) return {};
  const int64_t padded = c.PaddedColumns();
  AlignedBuffer<float> packed(static_cast<size_t>(c.table_heads * padded * head_dim), 0.0f);
  for (int64_t h = 0; h < c.table_heads; ++h) {
    for (int64_t x = 0; x < c.columns; ++x) {
      const float* from = rows.data() + (h * table_rows + c.row_of[x]) * head_dim;
      float* to =
          packed.data() + (h * padded + x / kKeyBlock * kKeyBlock) * head_dim + x % kKeyBlock;
      for (int64_t i = 0; i < head_dim; ++i) to[i * kKeyBlock] = from[i];
    }
  }
  return packed;
}

AlignedBuffer<float> PadRows(const ContentColumns& c, int64_t table_rows, int64_t head_dim,
                             const std::vector<float>& rows) {
  if (rows.empty()) return {};
  const int64_t stride = AttentionAccess::RowStride(head_dim);
  AlignedBuffer<float> padded(static_cast<size_t>(c.table_heads * c.columns * stride), 0.0f);
  for (int64_t h = 0; h < c.table_heads; ++h) {
    for (int64_t x = 0; x < c.columns; ++x) {
      std::copy_n(rows.data() + (h * table_rows + c.row_of[x]) * head_dim, head_dim,
                  padded.data() + (h * c.columns + x) * stride);
    }
  }
  return padded;
}

struct Preparer {
  const AttentionArgs& args;
  const QueryRanges& ranges;
  FormRun& run;

  void operator()(const SlopeForm& f) const {
    if (args.mask == AttentionMask::kBidirectional && f.ahead.empty()) {
      RefuseForm("SlopeForm.ahead: expected a slope for each head as attention is bidirectional");
    }
  }
  void operator()(const DistanceForm&) const {}
  void operator()(const PairForm& f) const {
    const int64_t known = f.function->positions();
    for (const auto& [name, positions] :
         {std::pair{"query", &ranges.query_positions}, std::pair{"key", &ranges.key_positions}}) {
      for (const int64_t position : *positions) {
        if (position >= 0 && position < known) continue;
        RefuseForm("PairForm.function: knows positions 0 to " + std::to_string(known - 1) +
                   ", got a " + name + " at " + std::to_string(position));
      }
    }
  }
  void operator()(const ContentForm&) const {
    if (!ranges.consecutive) {
      RefuseForm("key_positions: expected consecutive ones within a document, for a ContentForm");
    }
  }
  void operator()(const RunningForm& f) const {
    if (args.mask != AttentionMask::kCausal) {
      RefuseForm(
          "mask: expected a causal one for a RunningForm, which sums over the tokens between");
    }
    if (InParts(args)) {
      f.kind == RunningForm::Kind::kGates ? TakeGateSums() : TakeContextualSums();
      return;
    }
    if (!args.query_positions.empty()) {
      RefuseForm(
          "query_positions: expected none for a RunningForm, whose queries are the last keys, "
          "unless gate_sums or contextual_sums say what other parts hold");
    }
    const int64_t keys = args.cache->tokens(), heads = args.q.shape[1];
    if (f.kind == RunningForm::Kind::kContextual) return;
    if (static_cast<int64_t>(f.log_gates.size()) != keys * heads) {
      RefuseForm("RunningForm.log_gates: expected " + std::to_string(keys * heads) + " numbers, " +
                 std::to_string(keys) + " keys times " + std::to_string(heads) + " heads, got " +
                 std::to_string(f.log_gates.size()));
    }
    run.gate_stride = keys + 1;
    run.gate_sums.resize(static_cast<size_t>(heads * (keys + 1)));
    for (int64_t h = 0; h < heads; ++h) {
      double* sums = run.gate_sums.data() + h * (keys + 1);
      sums[0] = 0;
      for (int64_t l = 0; l < keys; ++l) {
        sums[l + 1] = sums[l] + f.log_gates[static_cast<size_t>(l * heads + h)];
      }
    }
  }

 private:
  void TakeGateSums() const {
    const int64_t keys = args.cache->tokens(), heads = args.q.shape[1], queries = args.q.shape[0];
    const GateSums& given = args.gate_sums;
    CheckSums("gate_sums.queries", given.queries.size(), queries * heads, "query");
    CheckSums("gate_sums.keys", given.keys.size(), keys * heads, "key");
    run.gate_stride = keys + 1;
    run.gate_sums.assign(static_cast<size_t>(heads * (keys + 1)), 0.0);
    run.query_gate_sums.resize(given.queries.size());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < keys; ++j) {
        run.gate_sums[h * (keys + 1) + j + 1] = given.keys[j * heads + h];
      }
      for (int64_t t = 0; t < queries; ++t) {
        run.query_gate_sums[h * queries + t] = given.queries[t * heads + h];
      }
    }
  }
  void TakeContextualSums() const {
    const int64_t expected = args.q.shape[0] * args.q.shape[1];
    const ContextualSums& given = args.contextual_sums;
    if (!given.nearer.empty()) {
      CheckSums("contextual_sums.nearer", given.nearer.size(), expected, "query");
    }
    if (!given.all.empty()) CheckSums("contextual_sums.all", given.all.size(), expected, "query");
    run.contextual_sums = &given;
  }
  static void CheckSums(const char* name, size_t got, int64_t expected, const char* of) {
    if (static_cast<int64_t>(got) == expected) return;
    RefuseForm(std::string(name) + ": expected " + std::to_string(expected) +
               " numbers, one for each " + of + " and head, got " + std::to_string(got));
  }
};

}  // namespace

std::shared_ptr<const ContentColumns> PackColumns(const ScoreForm& form) {
  if (const auto* f = std::get_if<ContentForm>(&form)) {
    auto c = std::make_shared<ContentColumns>(OrderColumns(*f));
    c->query_rows = PackRows(*c, f->rows, f->head_dim, f->query_rows);
    c->key_rows = PackRows(*c, f->rows, f->head_dim, f->key_rows);
    c->value_rows = PadRows(*c, f->rows, f->head_dim, f->value_rows);
    return c;
  }
  const auto* f = std::get_if<RunningForm>(&form);
  if (f == nullptr || f->kind != RunningForm::Kind::kContextual) return nullptr;
  auto c = std::make_shared<ContentColumns>();
  c->columns = f->rows;
  c->table_heads = f->table_heads;
  c->row_of.resize(static_cast<size_t>(f->rows));
  std::iota(c->row_of.begin(), c->row_of.end(), 0);
  c->query_rows = PackRows(*c, f->rows, f->head_dim, f->position_rows);
  return c;
}

FormRun PrepareForm(const AttentionArgs& args, const QueryRanges& ranges) {
  FormRun run;
  run.form = FormOf(args);
  if (args.prepared != nullptr) {
    run.content = AttentionAccess::Columns(*args.prepared);
  } else {
    run.own = PackColumns(*run.form);
    run.content = run.own.get();
  }
  run.ranges = &ranges;
  run.first_index = args.cache->tokens() - args.q.shape[0];
  std::visit(Preparer{args, ranges, run}, *run.form);
  return run;
}

void CheckDistances(const ScoreForm& form, const QueryRanges& ranges, const RotationRun& rotation) {
  if (const auto* f = std::get_if<DistanceForm>(&form)) {
    CheckKnownDistances("DistanceForm", *f, f->columns, ranges, rotation);
  } else if (const auto* rows = std::get_if<ContentForm>(&form)) {
    CheckKnownDistances("ContentForm", *rows, static_cast<int64_t>(rows->row_of.size()), ranges,
                        rotation);
  }
}

BackwardTables MakeBackwardTables(const ScoreForm& form, const ContentColumns* columns) {
  if (columns == nullptr) return {};
  const ContentColumns& c = *columns;
  if (const auto* f = std::get_if<ContentForm>(&form)) {
    return {PadRows(c, f->rows, f->head_dim, f->query_rows),
            PadRows(c, f->rows, f->head_dim, f->key_rows),
            PackRows(c, f->rows, f->head_dim, f->value_rows)};
  }
  if (const auto* f = std::get_if<RunningForm>(&form); f != nullptr) {
    return {PadRows(c, f->rows, f->head_dim, f->position_rows), {}, {}};
  }
  return {};
}

}  // namespace ropewalk::internal

namespace ropewalk {

PreparedForm::PreparedForm(ScoreForm form, int64_t heads, int64_t head_dim)
    : heads_(heads), head_dim_(head_dim) {
  CheckForm(form, heads, head_dim);
  columns_ = internal::PackColumns(form);
  form_ = std::make_shared<const ScoreForm>(std::move(form));
}

}  // namespace ropewalk
