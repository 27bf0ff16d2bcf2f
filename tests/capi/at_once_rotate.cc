// Rotation, its gradient and slots, by several threads at once: of a size that each call gives to
// threads of its own as well.
#include <memory>

#include "tests/capi/at_once.h"
#include "tests/capi/capi_test.h"

namespace ropewalk::at_once {
namespace {

constexpr int64_t kTokens = 512, kHeads = 8, kDim = 64, kCount = kTokens * kHeads * kDim;

struct Shared {
  std::shared_ptr<ropewalk_frequencies> frequencies, others;
  std::shared_ptr<ropewalk_table> table;
};

void Rotate(Caller& caller, const Shared& shared) {
  const ropewalk_positions at = start_at(100 * caller.index());
  std::vector<float> q = caller.Numbers(kCount, 1), k = caller.Numbers(kCount, 2);
  const std::vector<float> weight = caller.Numbers(kDim, 3);
  const ropewalk_tensor q_view = tensor(q.data(), ROPEWALK_F32, kTokens, kHeads, kDim);
  const ropewalk_tensor k_view = tensor(k.data(), ROPEWALK_F32, kTokens, kHeads, kDim);
  ropewalk_rotate_args args = rotate_args(&at, &q_view);
  args.k = &k_view;
  args.table = shared.table.get();
  WORKS(ropewalk_rotate, &args);
  args.table = nullptr;  // angles are computed in the call, behind a norm
  args.frequencies = shared.frequencies.get();
  args.q_norm_weight = args.k_norm_weight = weight.data();
  args.q_norm_eps = args.k_norm_eps = 1e-6;
  args.direction = ROPEWALK_FORWARD;
  WORKS(ropewalk_rotate, &args);
  caller.Keep(q);
  caller.Keep(k);
}

void Rerotate(Caller& caller, const Shared& shared) {
  std::vector<float> keys = caller.Numbers(kCount, 4);
  const ropewalk_tensor view = tensor(keys.data(), ROPEWALK_F32, kTokens, kHeads, kDim);
  auto args = Sized<ropewalk_rerotate_args>();
  args.frequencies = shared.frequencies.get();
  args.layout = ROPEWALK_HALF;
  args.keys = &view;
  args.delta = -1000 - caller.index();
  WORKS(ropewalk_rerotate, &args);
  caller.Keep(keys);

  std::vector<int64_t> from(kTokens), to(kTokens);
  for (size_t t = 0; t < kTokens; ++t) {
    from[t] = static_cast<int64_t>(t);
    to[t] = static_cast<int64_t>(t) / (caller.index() + 2);
  }
  args.delta = 0;
  args.from = shared.others.get();
  args.old_positions = from.data();
  args.new_positions = to.data();
  args.num = kTokens;
  WORKS(ropewalk_rerotate, &args);
  caller.Keep(keys);
}

void Gradient(Caller& caller, const Shared& shared) {
  std::vector<float> value = caller.Numbers(kCount, 5), gradient = caller.Numbers(kCount, 6);
  const ropewalk_tensor value_view = tensor(value.data(), ROPEWALK_F32, kTokens, kHeads, kDim);
  const ropewalk_tensor gradient_view =
      tensor(gradient.data(), ROPEWALK_F32, kTokens, kHeads, kDim);
  const ropewalk_positions at = start_at(caller.index());
  auto args = Sized<ropewalk_gradient_args>();
  args.frequencies = shared.frequencies.get();
  args.positions = &at;
  args.value = &value_view;
  args.gradient = &gradient_view;
  args.layout = ROPEWALK_HALF;
  double inv_freq[kDim / 2] = {}, amplitude = 0;
  WORKS(ropewalk_frequency_gradient, &args, inv_freq, &amplitude);
  caller.Keep(inv_freq, kDim / 2);
  caller.Keep(&amplitude, 1);
}

void Slots(Caller& caller) {
  const int32_t table[] = {7, 2, 9, 1, 4, caller.index()};
  const int64_t first[] = {caller.index(), 3};
  std::vector<int64_t> slots(2 * 20);
  WORKS(ropewalk_block_table_slots, table, 3, 16, first, 2, 20, slots.data());
  caller.Keep(slots);
  WORKS(ropewalk_ring_slots, 16 + caller.index(), first, 2, 20, slots.data());
  caller.Keep(slots);
}

}  // namespace

std::vector<Case> RotateCases() {
  Shared shared;
  shared.frequencies = {plain(kDim), ropewalk_frequencies_destroy};
  ropewalk_spec spec = spec_of(kDim);
  spec.base = 500000;
  ropewalk_frequencies* others = nullptr;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 4096, &others));
  shared.others = {others, ropewalk_frequencies_destroy};
  ropewalk_table* table = nullptr;
  EXPECT_OK(ropewalk_table_create(shared.frequencies.get(), 0, 4096, ROPEWALK_EXACT, &table));
  shared.table = {table, ropewalk_table_destroy};
  return {{"rotate", [=](Caller& caller) { Rotate(caller, shared); }},
          {"rerotate", [=](Caller& caller) { Rerotate(caller, shared); }},
          {"gradient", [=](Caller& caller) { Gradient(caller, shared); }},
          {"slots", Slots}};
}

}  // namespace ropewalk::at_once
