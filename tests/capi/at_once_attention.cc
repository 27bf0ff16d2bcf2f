// Attention and its gradient by several threads at once, with the same cache, form and rotation and
// with their own.
#include <cmath>
#include <memory>

#include "tests/capi/at_once.h"
#include "tests/capi/capi_test.h"

namespace ropewalk::at_once {
namespace {

constexpr int64_t kTokens = 256, kHeads = 4, kKvHeads = 2, kDim = 32;
constexpr int64_t kQueries = kTokens * kHeads * kDim, kKeys = kTokens * kKvHeads * kDim;
constexpr int64_t kBuckets = 32;

ropewalk_tensor View(std::vector<float>& x, int64_t heads) {
  return tensor(x.data(), ROPEWALK_F32, kTokens, heads, kDim);
}

struct Shared {
  std::shared_ptr<ropewalk_kv_cache> cache;
  std::shared_ptr<ropewalk_form> form;
  std::shared_ptr<ropewalk_load_rotation> rotation;
};

// A T5 bias, whose numbers are `embedding`.
ropewalk_bias BiasOf(const std::vector<float>& embedding) {
  static const ropewalk_parameter decoder[] = {{"bidirectional", 0}};
  auto bias = Sized<ropewalk_bias>();
  bias.method = "t5";
  bias.heads = kHeads;
  bias.head_dim = kDim;
  bias.max_distance = kTokens;
  bias.parameters = decoder;
  bias.num_parameters = 1;
  bias.values = embedding.data();
  bias.num_values = kBuckets * kHeads;
  return bias;
}

ropewalk_form_spec SlopesOf(const std::vector<float>& slopes) {
  auto spec = Sized<ropewalk_form_spec>();
  spec.kind = ROPEWALK_SLOPE;
  spec.heads = kHeads;
  spec.head_dim = kDim;
  spec.behind = slopes.data();
  return spec;
}

// One call and its gradient, with handles that this thread may share.
void Attend(Caller& caller, const ropewalk_kv_cache* cache, const ropewalk_form* form,
            const ropewalk_load_rotation* rotation, ropewalk_form_gradient* d_form) {
  std::vector<float> q = caller.Numbers(kQueries, 1), out(kQueries),
                     d_out = caller.Numbers(kQueries, 2);
  std::vector<float> sums(kTokens * kHeads), entropy(sums), d_q(kQueries), d_k(kKeys), d_v(kKeys);
  const ropewalk_tensor q_view = View(q, kHeads), out_view = View(out, kHeads);
  auto args = Sized<ropewalk_attention_args>();
  args.q = &q_view;
  args.out = &out_view;
  args.cache = cache;
  args.form = form;
  args.rotation = rotation;
  args.log_sum_exp = sums.data();
  args.entropy = entropy.data();
  WORKS(ropewalk_attention, &args);
  const ropewalk_tensor d_out_view = View(d_out, kHeads), d_q_view = View(d_q, kHeads);
  const ropewalk_tensor d_k_view = View(d_k, kKvHeads), d_v_view = View(d_v, kKvHeads);
  auto backward = Sized<ropewalk_attention_backward_args>();
  backward.forward = &args;
  backward.d_out = &d_out_view;
  backward.d_q = &d_q_view;
  backward.d_k = &d_k_view;
  backward.d_v = &d_v_view;
  backward.d_form = d_form;
  WORKS(ropewalk_attention_backward, &backward);
  for (const std::vector<float>* x : {&out, &sums, &entropy, &d_q, &d_k, &d_v}) caller.Keep(*x);
}

void WithShared(Caller& caller, const Shared& shared) {
  auto info = Sized<ropewalk_kv_cache_info>();
  WORKS(ropewalk_kv_cache_get, shared.cache.get(), &info);
  caller.Keep(&info.tokens, 1);
  std::vector<float> slopes(kHeads);
  auto d_form = Sized<ropewalk_form_gradient>();
  d_form.behind = slopes.data();
  Attend(caller, shared.cache.get(), shared.form.get(), shared.rotation.get(), &d_form);
  caller.Keep(slopes);
}

ropewalk_kv_cache* OwnCache(Caller& caller) {
  auto spec = Sized<ropewalk_kv_cache_spec>();
  spec.kv_heads = kKvHeads;
  spec.head_dim = kDim;
  spec.capacity_tokens = kTokens;
  ropewalk_kv_cache* cache = nullptr;
  WORKS(ropewalk_kv_cache_create_from, &spec, &cache);
  CALL(ropewalk_kv_cache_destroy, cache);
  WORKS(ropewalk_kv_cache_create, kKvHeads, kDim, kTokens, &cache);
  std::vector<float> k = caller.Numbers(kKeys, 3), v = caller.Numbers(kKeys, 4);
  const ropewalk_tensor k_view = View(k, kKvHeads), v_view = View(v, kKvHeads);
  WORKS(ropewalk_kv_cache_append, cache, &k_view, &v_view);
  WORKS(ropewalk_kv_cache_truncate, cache, 0);
  WORKS(ropewalk_kv_cache_append, cache, &k_view, &v_view);
  return cache;
}

void WithOwn(Caller& caller) {
  ropewalk_kv_cache* cache = OwnCache(caller);
  ropewalk_form *form = nullptr, *slopes = nullptr;
  const std::vector<float> embedding = caller.Numbers(kBuckets * kHeads, 5);
  const ropewalk_form_spec slope_spec = SlopesOf(embedding);
  WORKS(ropewalk_form_create, &slope_spec, &slopes);
  const ropewalk_bias bias = BiasOf(embedding);
  WORKS(ropewalk_form_lower, &bias, &form);
  ropewalk_load_rotation* rotation = nullptr;
  const ropewalk_spec spec = spec_of(kDim);
  auto map = Sized<ropewalk_distance_map>();
  map.kind = ROPEWALK_REROPE;
  map.window = 60 + caller.index();
  WORKS(ropewalk_load_rotation_create, &spec, kTokens, ROPEWALK_EXACT, &map, &rotation);
  WORKS(ropewalk_load_rotation_grow, rotation, kTokens);
  std::vector<float> table((kTokens + 1) * kHeads);
  auto d_form = Sized<ropewalk_form_gradient>();
  d_form.values = table.data();
  Attend(caller, cache, form, nullptr, &d_form);
  std::vector<double> d_embedding(embedding.size());
  WORKS(ropewalk_bias_gradient, &bias, &d_form, d_embedding.data());
  caller.Keep(d_embedding);
  Attend(caller, cache, slopes, rotation, nullptr);
  CALL(ropewalk_load_rotation_destroy, rotation);
  CALL(ropewalk_form_destroy, slopes);
  CALL(ropewalk_form_destroy, form);
  CALL(ropewalk_kv_cache_destroy, cache);
}

}  // namespace

std::vector<Case> AttentionCases() {
  Caller caller(0, nullptr);
  Shared shared;
  shared.cache = {OwnCache(caller), ropewalk_kv_cache_destroy};
  const std::vector<float> numbers = caller.Numbers(kHeads, 6);
  const ropewalk_form_spec slopes = SlopesOf(numbers);
  ropewalk_form* form = nullptr;
  EXPECT_OK(ropewalk_form_create(&slopes, &form));
  shared.form = {form, ropewalk_form_destroy};
  const ropewalk_spec spec = spec_of(kDim);
  ropewalk_load_rotation* rotation = nullptr;
  EXPECT_OK(ropewalk_load_rotation_create(&spec, kTokens, ROPEWALK_EXACT, nullptr, &rotation));
  EXPECT_OK(ropewalk_load_rotation_grow(rotation, kTokens));
  shared.rotation = {rotation, ropewalk_load_rotation_destroy};
  return {{"shared attention", [=](Caller& c) { WithShared(c, shared); }},
          {"own attention", WithOwn}};
}

}  // namespace ropewalk::at_once
