/* A layer of an engine written in C: ten tokens attend with ALiBi, the last of them once more as a
 * decode step would, then the gradient of learned slopes. Build: cc attention.c $(pkg-config
 * --cflags
 * --libs ropewalk-capi_attention), or with find_package(ropewalk), target
 * ropewalk::capi_attention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ropewalk/ropewalk_attention.h"

enum { kTokens = 10, kHeads = 2, kDim = 4, kAll = kTokens * kHeads * kDim };

static void check(ropewalk_status status) {
  if (status == ROPEWALK_OK) return;
  fprintf(stderr, "ropewalk: %s\n", ropewalk_last_error());
  exit(1);
}

static ropewalk_tensor rows(float* data, int64_t tokens) {
  const int64_t shape[] = {tokens, kHeads, kDim};
  ropewalk_tensor view;
  ropewalk_tensor_init(&view, data, ROPEWALK_F32, 3, shape);
  return view;
}

int main(void) {
  static float q[kAll], k[kAll], v[kAll], out[kAll], step[kHeads * kDim], lse[kTokens * kHeads];
  for (int i = 0; i < kAll; ++i) {
    q[i] = sinf(0.7f * (float)i);
    k[i] = sinf(1.3f * (float)i);
    v[i] = cosf(0.9f * (float)i);
  }
  ropewalk_tensor q_view = rows(q, kTokens), k_view = rows(k, kTokens), v_view = rows(v, kTokens);
  ropewalk_tensor out_view = rows(out, kTokens);
  ropewalk_kv_cache* cache = NULL;
  check(ropewalk_kv_cache_create(kHeads, kDim, 4096, &cache));
  check(ropewalk_kv_cache_append(cache, &k_view, &v_view));

  const float slopes[kHeads] = {0.0625f, 0.00390625f};
  ropewalk_bias bias = {0};
  bias.size = sizeof bias;
  bias.method = "alibi";
  bias.heads = kHeads;
  bias.head_dim = kDim;
  bias.max_distance = 4095;
  bias.values = slopes; /* learned; NULL: those of the paper, which are the same here */
  bias.num_values = kHeads;
  ropewalk_form* form = NULL;
  check(ropewalk_form_lower(&bias, &form));

  ropewalk_attention_args args = {0};
  args.size = sizeof args;
  args.q = &q_view;
  args.out = &out_view;
  args.cache = cache;
  args.form = form;
  args.log_sum_exp = lse;
  check(ropewalk_attention(&args));

  ropewalk_tensor last = rows(q + (kTokens - 1) * kHeads * kDim, 1), step_view = rows(step, 1);
  ropewalk_attention_args decode = args;
  decode.q = &last;
  decode.out = &step_view;
  decode.log_sum_exp = NULL;
  check(ropewalk_attention(&decode));
  printf("last token: %.6f at once, %.6f by itself\n", out[kAll - kHeads * kDim], step[0]);

  static float d_out[kAll], d_q[kAll], d_k[kAll], d_v[kAll], d_behind[kHeads];
  for (int i = 0; i < kAll; ++i) d_out[i] = 1;
  ropewalk_tensor d_out_view = rows(d_out, kTokens), d_q_view = rows(d_q, kTokens);
  ropewalk_tensor d_k_view = rows(d_k, kTokens), d_v_view = rows(d_v, kTokens);
  ropewalk_form_gradient d_form = {0};
  d_form.size = sizeof d_form;
  d_form.behind = d_behind;
  ropewalk_attention_backward_args backward = {0};
  backward.size = sizeof backward;
  backward.forward = &args;
  backward.d_out = &d_out_view;
  backward.d_q = &d_q_view;
  backward.d_k = &d_k_view;
  backward.d_v = &d_v_view;
  backward.d_form = &d_form;
  check(ropewalk_attention_backward(&backward));
  double d_slopes[kHeads];
  check(ropewalk_bias_gradient(&bias, &d_form, d_slopes));
  printf("gradient of the slopes: %.4f and %.4f\n", d_slopes[0], d_slopes[1]);

  ropewalk_form_destroy(form);
  ropewalk_kv_cache_destroy(cache);
  return 0;
}
