/* Runs a problem of attention_reference.h through the library, and compares. */
#ifndef TESTS_CAPI_ATTENTION_SUPPORT_H_
#define TESTS_CAPI_ATTENTION_SUPPORT_H_

#include "tests/capi/attention_reference.h"

/* The same numbers on every machine, -1 to 1, multiples of 2^-12. */
static inline float noise(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)((int32_t)(*state >> 19) - 4096) / 4096;
}
static inline float* numbers(int64_t count, uint32_t seed, float size) {
  float* x = malloc((size_t)count * sizeof *x);
  int64_t i;
  for (i = 0; i < count; ++i) x[i] = size * noise(&seed);
  return x;
}

static inline problem make_problem(int64_t heads, int64_t kv_heads, int64_t dim, int64_t queries,
                                   int64_t keys) {
  problem p;
  memset(&p, 0, sizeof p);
  p.heads = heads, p.kv_heads = kv_heads, p.dim = dim, p.queries = queries, p.keys = keys;
  p.q = numbers(queries * heads * dim, 1, 2);
  p.k = numbers(keys * kv_heads * dim, 2, 2);
  p.v = numbers(keys * kv_heads * dim, 3, 1);
  p.scale = 1 / sqrt((double)dim);
  p.form.size = sizeof p.form;
  p.form.heads = heads;
  p.form.head_dim = dim;
  p.map.size = sizeof p.map;
  return p;
}
static inline void free_problem(problem* p) {
  free(p->q);
  free(p->k);
  free(p->v);
}

/* Handles and views of a problem, for one call and its gradient. */
typedef struct call {
  ropewalk_kv_cache* cache;
  ropewalk_form* form;
  ropewalk_load_rotation* rotation;
  ropewalk_tensor q, out;
  float *result, *log_sum_exp, *entropy;
  ropewalk_attention_args args;
} call;

static inline void make_call(const problem* p, const ropewalk_bias* method, call* c) {
  ropewalk_tensor k = tensor(p->k, ROPEWALK_F32, p->keys, p->kv_heads, p->dim);
  ropewalk_tensor v = tensor(p->v, ROPEWALK_F32, p->keys, p->kv_heads, p->dim);
  memset(c, 0, sizeof *c);
  EXPECT_OK(ropewalk_kv_cache_create(p->kv_heads, p->dim, p->keys, &c->cache));
  EXPECT_OK(ropewalk_kv_cache_append(c->cache, &k, &v));
  if (method != NULL) {
    EXPECT_OK(ropewalk_form_lower(method, &c->form));
  } else if (p->form.kind != 0) {
    EXPECT_OK(ropewalk_form_create(&p->form, &c->form));
  }
  if (p->base != 0) {
    ropewalk_spec spec = spec_of(p->dim);
    spec.base = p->base;
    EXPECT_OK(ropewalk_load_rotation_create(&spec, p->keys, ROPEWALK_EXACT,
                                            p->map.kind == 0 ? NULL : &p->map, &c->rotation));
    EXPECT_OK(ropewalk_load_rotation_grow(c->rotation, p->keys));
  }
  c->result = malloc((size_t)(p->queries * p->heads * p->dim) * sizeof(float));
  c->log_sum_exp = malloc((size_t)(p->queries * p->heads) * sizeof(float));
  c->entropy = malloc((size_t)(p->queries * p->heads) * sizeof(float));
  c->q = tensor(p->q, ROPEWALK_F32, p->queries, p->heads, p->dim);
  c->out = tensor(c->result, ROPEWALK_F32, p->queries, p->heads, p->dim);
  c->args.size = sizeof c->args;
  c->args.q = &c->q;
  c->args.out = &c->out;
  c->args.cache = c->cache;
  c->args.scale = p->scale == 1 / sqrt((double)p->dim) ? 0 : (float)p->scale;
  c->args.soft_cap = (float)p->cap;
  c->args.mask = p->bidirectional ? ROPEWALK_BIDIRECTIONAL : ROPEWALK_CAUSAL;
  c->args.window_tokens = p->window;
  c->args.form = c->form;
  c->args.rotation = c->rotation;
  c->args.sinks = p->sinks;
  c->args.temperatures = p->temperatures;
  c->args.query_positions = p->query_positions;
  c->args.key_positions = p->key_positions;
  c->args.document_starts = p->starts;
  c->args.num_documents = p->num_starts;
  c->args.log_sum_exp = c->log_sum_exp;
  c->args.entropy = c->entropy;
}
static inline void free_call(call* c) {
  ropewalk_kv_cache_destroy(c->cache);
  ropewalk_form_destroy(c->form);
  ropewalk_load_rotation_destroy(c->rotation);
  free(c->result);
  free(c->log_sum_exp);
  free(c->entropy);
}

/* The library's numbers are the reference's: outputs of size 1, sums of logarithms of any size. */
static inline void expect_same(const problem* p, const ropewalk_bias* method, const char* what) {
  const int64_t rows = p->queries * p->heads;
  double* out = malloc((size_t)(rows * p->dim) * sizeof *out);
  double* sums = malloc((size_t)rows * sizeof *sums);
  double* entropy = malloc((size_t)rows * sizeof *entropy);
  double worst = 0;
  int64_t i;
  call c;
  make_call(p, method, &c);
  expect(ropewalk_attention(&c.args) == ROPEWALK_OK, what, __FILE__, __LINE__);
  reference(p, out, sums, entropy);
  for (i = 0; i < rows * p->dim; ++i) {
    const double error = fabs(out[i] - c.result[i]);
    if (!(error <= worst)) worst = error;
  }
  for (i = 0; i < rows; ++i) {
    const double error = fabs(entropy[i] - c.entropy[i]);
    if (!(error <= worst)) worst = error;
  }
  for (i = 0; i < rows; ++i) {
    if (isinf(sums[i]) && (double)c.log_sum_exp[i] == sums[i]) continue;
    const double error = fabs(sums[i] - c.log_sum_exp[i]) / (1 + fabs(sums[i]));
    if (!(error <= worst)) worst = error;
  }
  if (!(worst <= 4e-6)) {
    fprintf(stderr, "%s: off by %g\n", what, worst);
    ++failures;
  }
  free_call(&c);
  free(out);
  free(sums);
  free(entropy);
}

void test_forms(void);     /* attention_forms_test.c */
void test_gradients(void); /* attention_gradient_test.c */

#endif /* TESTS_CAPI_ATTENTION_SUPPORT_H_ */
