#include "ropewalk/attention/backward.h"

#include <omp.h>

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"
#include "src/attention/head_memory.h"
#include "src/attention/kernel/backward_tile.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

using internal::BackwardTables;
using internal::BackwardTile;
using internal::ContentColumns;
using internal::FormRun;
using internal::FormSums;
using internal::HeadMemory;
using internal::KeyRotations;
using internal::kTileRows;

constexpr float kLn2 = 0.693147181f;

[[noreturn]] void RefuseBackward(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "AttentionBackward: " + message);
}

void CheckGradientView(const char* name, const TensorView& view, int64_t tokens, int64_t heads,
                       int64_t head_dim) {
  if (view.dtype != DType::kF32 || view.device != Device::kCpu || view.rank != 3 ||
      view.shape[0] != tokens || view.shape[1] != heads || view.shape[2] != head_dim ||
      (head_dim > 1 && view.strides[2] != 1) || (view.data == nullptr && tokens > 0)) {
    RefuseBackward(std::string(name) + ": expected float32 [" + std::to_string(tokens) + ", " +
                   std::to_string(heads) + ", " + std::to_string(head_dim) +
                   "] with a last stride of 1, got " + Name(view.dtype) + " " + view.ShapeString() +
                   (view.data == nullptr ? " without data" : ""));
  }
  internal::CheckAddressable((std::string("AttentionBackward: ") + name).c_str(), view);
}

void Check(const AttentionBackwardArgs& args) {
  if (args.forward == nullptr)
    RefuseBackward("forward: expected the arguments of the call, got null");
  const AttentionArgs& f = *args.forward;
  internal::CheckAttention(f);
  if (f.cache->type() != KvType::kF32) {
    RefuseBackward(
        std::string("forward.cache: expected a cache of type f32, whose gradients are those of "
                    "what was appended, got one of ") +
        Name(f.cache->type()));
  }
  if (f.compute != ComputeType::kFloat32) {
    RefuseBackward(std::string("forward.compute: expected float32, got ") + Name(f.compute));
  }
  if (internal::InParts(f)) {
    RefuseBackward(
        "forward.gate_sums and contextual_sums: expected none, because the gradient of a gate "
        "needs all keys");
  }
  const int64_t tokens = f.q.shape[0], heads = f.q.shape[1];
  const internal::HeadDims dims(*f.cache);
  if (tokens > 0 && f.log_sum_exp.empty()) {
    RefuseBackward("forward.log_sum_exp: expected what Attention wrote; give it room there");
  }
  if (tokens > 0 && f.q.data == f.out.data) {
    RefuseBackward("forward.out: expected memory of its own, because q is needed again");
  }
  CheckGradientView("d_out", args.d_out, tokens, heads, dims.value);
  CheckGradientView("d_q", args.d_q, tokens, heads, dims.key);
  CheckGradientView("d_k", args.d_k, f.cache->tokens(), f.cache->kv_heads(), dims.key);
  CheckGradientView("d_v", args.d_v, f.cache->tokens(), f.cache->kv_heads(), dims.value);
  internal::CheckWritten("AttentionBackward: d_q", args.d_q);
  internal::CheckWritten("AttentionBackward: d_k", args.d_k);
  internal::CheckWritten("AttentionBackward: d_v", args.d_v);
  if (!args.d_sinks.empty() && args.d_sinks.size() != f.sinks.size()) {
    RefuseBackward("d_sinks: expected as many as forward.sinks, " + std::to_string(f.sinks.size()) +
                   ", got " + std::to_string(args.d_sinks.size()));
  }
}

FormSums MakeSums(const FormRun& run, int64_t first_head, int64_t group, int64_t head_dim) {
  FormSums s;
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  if (std::holds_alternative<SlopeForm>(*run.form)) {
    s.behind.resize(count(group));
    s.ahead.resize(count(group));
  } else if (const auto* table = std::get_if<DistanceForm>(run.form)) {
    s.values.resize(count(group * table->columns));
  } else if (const auto* pair = std::get_if<PairForm>(run.form)) {
    const PairFunction& f = *pair->function;
    s.pair = AlignedBuffer<double>(count(f.parameters()));
    s.pair_range = {f.ParametersOf(first_head).first, f.ParametersOf(first_head + group - 1).end};
    std::fill(s.pair.data() + s.pair_range.first, s.pair.data() + s.pair_range.end, 0.0);
  } else if (run.content != nullptr) {  // ContentForm, and RunningForm with rows
    const ContentColumns& c = *run.content;
    const int64_t tables = c.table_heads == 1 ? 1 : group;
    const auto make = [&](const AlignedBuffer<float>& rows) {
      if (rows.size() == 0) return AlignedBuffer<float>();
      return AlignedBuffer<float>(count(tables * c.columns * AttentionAccess::RowStride(head_dim)),
                                  0.0f);
    };
    s.query_rows = make(c.query_rows);
    s.key_rows = make(c.key_rows);
    s.value_rows = make(c.value_rows);
    s.query_bias.resize(count(group * head_dim));
    s.key_bias.resize(count(group * head_dim));
  } else {
    s.gates.resize(count(group * run.gate_stride));
  }
  return s;
}

// One call's; jobs read it.
struct Call {
  const AttentionBackwardArgs& args;
  const AttentionArgs& forward;
  BackwardTables tables;
  int64_t group, tile_tokens;
  internal::AttentionRun run;
};

BackwardTile MakeTile(const Call& call, HeadMemory& memory, int64_t token, int64_t kv_head) {
  const AttentionArgs& f = call.forward;
  BackwardTile b;
  const int64_t tokens = std::min(call.tile_tokens, f.q.shape[0] - token);
  b.forward = internal::MakeTile(f, call.run, token, tokens, kv_head);
  const int64_t head = kv_head * call.group;
  const auto at = [&](const TensorView& view) {
    return static_cast<float*>(view.data) + token * view.strides[0] + head * view.strides[1];
  };
  b.d_out = at(call.args.d_out);
  b.d_out_token_stride = call.args.d_out.strides[0];
  b.d_out_head_stride = call.args.d_out.strides[1];
  b.d_q = at(call.args.d_q);
  b.d_q_token_stride = call.args.d_q.strides[0];
  b.d_q_head_stride = call.args.d_q.strides[1];
  b.packed_values = memory.packed_values();
  b.key_rows = memory.key_rows();
  b.d_keys = memory.d_keys();
  b.view_stride = memory.view_stride();
  b.d_values = memory.d_values();
  b.tables = &call.tables;
  return b;
}

// A thread's memory.
struct Worker {
  HeadMemory head;
  int64_t forward_floats;
  AlignedBuffer<float> scratch, contextual;

  Worker(const Call& call, const KeyRotations& rotations)
      : head(*call.forward.cache, call.run.rotation, rotations) {
    const internal::HeadDims dims(*call.forward.cache);
    const int64_t rows = call.tile_tokens * call.group;
    forward_floats = internal::TileScratchFloats(call.run, rows, call.group, dims);
    const int views = std::max(1, call.run.rotation.views);
    scratch = AlignedBuffer<float>(
        static_cast<size_t>(forward_floats + internal::BackwardScratchFloats(rows, dims, views)));
    const FormRun& form = call.run.form;
    if (form.form == nullptr || form.content == nullptr) return;
    if (!std::holds_alternative<RunningForm>(*form.form)) return;
    contextual = AlignedBuffer<float>(static_cast<size_t>(internal::ContextualScratchFloats(
        rows, form.content->PaddedColumns(), call.forward.cache->tokens())));
  }

  // By the thread itself: where the system clears its pages, others need not wait for it.
  void Clear() {
    head.Clear();
    std::fill_n(scratch.data(), scratch.size(), 0.0f);
  }
};

void RunHead(const Call& call, int64_t kv_head, Worker& worker, FormSums* sums, double* d_sinks) {
  worker.head.Load(kv_head);
  for (int64_t token = 0; token < call.forward.q.shape[0]; token += call.tile_tokens) {
    BackwardTile b = MakeTile(call, worker.head, token, kv_head);
    internal::SetScratch(b.forward, call.run, worker.scratch.data());
    b.scratch = worker.scratch.data() + worker.forward_floats;
    b.contextual = worker.contextual.data();
    b.sums = sums;
    b.d_sinks = d_sinks == nullptr ? nullptr : d_sinks + kv_head * call.group;
    internal::AttendBackward(b);
  }
  worker.head.WriteKeys(kLn2, call.args.d_k, kv_head);
  worker.head.WriteValues(call.args.d_v, kv_head);
}

// The rows' gradients, in the order of the form, from those of the columns.
std::vector<float> GatherRows(int64_t table_rows, int64_t dim, const ContentColumns& c,
                              float factor, const std::vector<FormSums>& sums,
                              AlignedBuffer<float> FormSums::*member) {
  if ((sums[0].*member).size() == 0) return {};
  const int64_t stride = AttentionAccess::RowStride(dim);
  std::vector<double> total(static_cast<size_t>(c.table_heads * table_rows * dim));
  for (size_t kv = 0; kv < sums.size(); ++kv) {
    const AlignedBuffer<float>& from = sums[kv].*member;
    const int64_t tables = static_cast<int64_t>(from.size()) / (c.columns * stride);
    for (int64_t t = 0; t < tables; ++t) {
      const int64_t head = c.table_heads == 1 ? 0 : static_cast<int64_t>(kv) * tables + t;
      for (int64_t x = 0; x < c.columns; ++x) {
        for (int64_t i = 0; i < dim; ++i) {
          total[(head * table_rows + c.row_of[x]) * dim + i] +=
              from[(t * c.columns + x) * stride + i];
        }
      }
    }
  }
  std::vector<float> out(total.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(factor * total[i]);
  return out;
}

std::vector<float> Join(const std::vector<FormSums>& sums, std::vector<double> FormSums::*member) {
  std::vector<float> out;
  for (const FormSums& s : sums) {
    for (const double x : s.*member) out.push_back(static_cast<float>(x));
  }
  return out;
}

// log_gates[l] is part of every sum after it.
std::vector<float> GateGradient(const std::vector<FormSums>& sums, int64_t heads, int64_t keys) {
  std::vector<float> out(static_cast<size_t>(keys * heads));
  const int64_t group = heads / static_cast<int64_t>(sums.size());
  for (int64_t h = 0; h < heads; ++h) {
    const double* from = sums[static_cast<size_t>(h / group)].gates.data() + h % group * (keys + 1);
    double sum = 0;
    for (int64_t l = keys - 1; l >= 0; --l) {
      sum += from[l + 1];
      out[static_cast<size_t>(l * heads + h)] = static_cast<float>(sum);
    }
  }
  return out;
}

FormGradient Finish(const Call& call, const std::vector<FormSums>& sums) {
  FormGradient g;
  const ScoreForm& form = *call.run.form.form;
  g.behind = Join(sums, &FormSums::behind);
  g.ahead = Join(sums, &FormSums::ahead);
  if (const auto* slope = std::get_if<SlopeForm>(&form); slope && slope->ahead.empty()) {
    g.ahead.clear();
  }
  g.values = Join(sums, &FormSums::values);
  g.parameters.resize(sums[0].pair.size());
  for (const FormSums& s : sums) {
    for (int64_t i = s.pair_range.first; i < s.pair_range.end; ++i) g.parameters[i] += s.pair[i];
  }
  if (const auto* content = std::get_if<ContentForm>(&form)) {
    const ContentColumns& c = *call.run.form.content;
    g.query_rows =
        GatherRows(content->rows, content->head_dim, c, kLn2, sums, &FormSums::query_rows);
    g.key_rows = GatherRows(content->rows, content->head_dim, c, kLn2, sums, &FormSums::key_rows);
    g.value_rows =
        GatherRows(content->rows, content->head_dim, c, 1.0f, sums, &FormSums::value_rows);
    if (!content->query_bias.empty()) g.query_bias = Join(sums, &FormSums::query_bias);
    if (!content->key_bias.empty()) g.key_bias = Join(sums, &FormSums::key_bias);
  }
  if (const auto* running = std::get_if<RunningForm>(&form)) {
    if (running->kind == RunningForm::Kind::kContextual) {
      g.position_rows = GatherRows(running->rows, running->head_dim, *call.run.form.content, kLn2,
                                   sums, &FormSums::query_rows);
    } else {
      g.log_gates = GateGradient(sums, call.forward.q.shape[1], call.forward.cache->tokens());
    }
  }
  return g;
}

}  // namespace

void AttentionBackward(const AttentionBackwardArgs& args) {
  Check(args);
  const AttentionArgs& f = *args.forward;
  const int64_t heads = f.q.shape[1], kv_heads = f.cache->kv_heads(), group = heads / kv_heads;
  Call call{args, f, {}, group, std::max<int64_t>(1, kTileRows / group), {}};
  internal::Prepare(f, call.run);
  call.tile_tokens = std::clamp<int64_t>(f.q.shape[0], 1, call.tile_tokens);
  std::vector<FormSums> sums;
  if (call.run.form.form != nullptr) {
    call.tables = internal::MakeBackwardTables(*call.run.form.form, call.run.form.content);
    // Terms of content add to theirs beside d_q, wanted or not.
    const bool summed = args.d_form != nullptr || call.run.form.content != nullptr;
    for (int64_t h = 0; summed && h < kv_heads; ++h) {
      sums.push_back(MakeSums(call.run.form, h * group, group, f.q.shape[2]));
    }
  }
  std::vector<double> d_sinks(args.d_sinks.size());
  // Five products of two operations for each pair of tokens.
  const int64_t work_ns = f.q.shape[0] * heads * f.cache->tokens() * f.q.shape[2] / 10;
  const int threads = static_cast<int>(std::min<int64_t>(internal::ThreadsFor(work_ns), kv_heads));
  const KeyRotations rotations(*f.cache, call.run.rotation);
  std::vector<Worker> workers;
  workers.reserve(static_cast<size_t>(threads));
  for (int t = 0; t < threads; ++t) workers.emplace_back(call, rotations);
#pragma omp parallel num_threads(threads)
  {
    Worker& worker = workers[static_cast<size_t>(omp_get_thread_num())];
    worker.Clear();
#pragma omp for schedule(dynamic, 1)
    for (int64_t h = 0; h < kv_heads; ++h) {
      RunHead(call, h, worker, sums.empty() ? nullptr : &sums[static_cast<size_t>(h)],
              d_sinks.empty() ? nullptr : d_sinks.data());
    }
  }
  std::copy(d_sinks.begin(), d_sinks.end(), args.d_sinks.begin());
  if (args.d_form != nullptr) {
    *args.d_form = call.run.form.form == nullptr ? FormGradient() : Finish(call, sums);
  }
}

}  // namespace ropewalk
