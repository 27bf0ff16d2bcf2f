/* ropewalk_attention.h, compiled and used as C: attention, distance maps and caches against the
 * reference typed again in double; and what is refused. Forms and gradients have files of their
 * own. */
#include "tests/capi/attention_support.h"

int failures = 0;

static const int64_t kFar[] = {0, 1, 255, 256, 257, 131071, 1048575};

static void test_masks(void) {
  const int64_t starts[] = {0, 3, 4, 40};
  float sinks[] = {0.5f, -1, 2, 0}, temperatures[33];
  problem p = make_problem(4, 2, 8, 33, 70);
  int i;
  for (i = 0; i < 33; ++i) temperatures[i] = 1 + (float)i / 40;
  expect_same(&p, NULL, "causal");
  p.window = 9;
  expect_same(&p, NULL, "sliding window");
  p.bidirectional = 1;
  expect_same(&p, NULL, "window on both sides");
  p.window = 0;
  expect_same(&p, NULL, "bidirectional");
  p.starts = starts;
  p.num_starts = 4;
  expect_same(&p, NULL, "packed, bidirectional");
  p.bidirectional = 0;
  p.sinks = sinks;
  p.temperatures = temperatures;
  p.cap = 3;
  p.scale = 0.7;
  expect_same(&p, NULL, "packed, sinks, temperatures, soft cap, a scale");
  free_problem(&p);

  /* Cross attention: documents of queries of their own, at far positions. */
  p = make_problem(4, 1, 8, 7, 7);
  p.query_positions = p.key_positions = kFar;
  expect_same(&p, NULL, "far positions");
  p.window = 131072;
  expect_same(&p, NULL, "far positions in a window");
  free_problem(&p);
}

/* One call equals the same in parts, and in tokens; q may be out. */
static void test_decoding(void) {
  problem p = make_problem(4, 2, 8, 20, 20);
  call c;
  ropewalk_kv_cache* cache = NULL;
  ropewalk_kv_cache_info info;
  int64_t t;
  float token[4 * 8];
  make_call(&p, NULL, &c);
  EXPECT_OK(ropewalk_attention(&c.args));
  EXPECT_OK(ropewalk_kv_cache_create(2, 8, 20, &cache));
  for (t = 0; t < 20; ++t) {
    ropewalk_tensor k = tensor(p.k + t * 16, ROPEWALK_F32, 1, 2, 8);
    ropewalk_tensor v = tensor(p.v + t * 16, ROPEWALK_F32, 1, 2, 8);
    ropewalk_tensor q = tensor(token, ROPEWALK_F32, 1, 4, 8);
    ropewalk_attention_args args = c.args;
    int i;
    EXPECT_OK(ropewalk_kv_cache_append(cache, &k, &v));
    memcpy(token, p.q + t * 32, sizeof token);
    args.cache = cache;
    args.q = args.out = &q;
    args.log_sum_exp = args.entropy = NULL;
    EXPECT_OK(ropewalk_attention(&args));
    for (i = 0; i < 32; ++i) EXPECT_NEAR(token[i], c.result[t * 32 + i], 1e-6);
  }
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  EXPECT_OK(ropewalk_kv_cache_get(cache, &info));
  EXPECT(info.tokens == 20 && info.capacity_tokens == 20 && info.kv_heads == 2);
  EXPECT(info.head_dim == 8 && info.bytes >= 2 * 20 * 2 * 8 * 4);
  EXPECT_OK(ropewalk_kv_cache_truncate(cache, 5));
  EXPECT_OK(ropewalk_kv_cache_get(cache, &info));
  EXPECT(info.tokens == 5);
  EXPECT_REFUSED(ropewalk_kv_cache_truncate(cache, 6), "expected 0 to 5 tokens, got 6");
  ropewalk_kv_cache_destroy(cache);
  free_call(&c);
  free_problem(&p);
}

enum { kTokensHere = 20, kWide = 8, kNarrow = 5, kOut = kTokensHere * 4 * kWide };

/* Of values of kWide elements and of kNarrow. */
static void expect_width_gradients(const ropewalk_attention_args* wide,
                                   const ropewalk_attention_args* narrow, float* d_out) {
  float d_q[2][kOut], d_k[2][kOut / 2], d_v[2][kOut / 2];
  int i, run;
  for (run = 0; run < 2; ++run) {
    ropewalk_tensor d_outs = tensor(d_out, ROPEWALK_F32, kTokensHere, 4, kWide);
    ropewalk_tensor d_qs = tensor(d_q[run], ROPEWALK_F32, kTokensHere, 4, kWide);
    ropewalk_tensor d_ks = tensor(d_k[run], ROPEWALK_F32, kTokensHere, 2, kWide);
    ropewalk_tensor d_vs = tensor(d_v[run], ROPEWALK_F32, kTokensHere, 2, kWide);
    ropewalk_attention_backward_args b = {.size = sizeof b,
                                          .forward = run == 0 ? wide : narrow,
                                          .d_out = &d_outs,
                                          .d_q = &d_qs,
                                          .d_k = &d_ks,
                                          .d_v = &d_vs};
    d_outs.shape[2] = d_vs.shape[2] = run == 0 ? kWide : kNarrow;
    EXPECT_OK(ropewalk_attention_backward(&b));
  }
  for (i = 0; i < kOut; ++i) EXPECT_NEAR(d_q[0][i], d_q[1][i], 1e-6);
  for (i = 0; i < kOut / 2; ++i) {
    EXPECT_NEAR(d_k[0][i], d_k[1][i], 1e-6);
    if (i % kWide < kNarrow) EXPECT_NEAR(d_v[0][i], d_v[1][i], 1e-6);
  }
}

/* Elements of values do not meet: narrower ones give the first elements of the wider ones, and their
 * gradients where those of the rest are 0. */
static void test_value_widths(void) {
  problem p = make_problem(4, 2, kWide, kTokensHere, kTokensHere);
  call c;
  ropewalk_kv_cache* cache = NULL;
  ropewalk_kv_cache_info info;
  ropewalk_kv_cache_spec spec = {.size = sizeof spec,
                                 .kv_heads = 2,
                                 .head_dim = kWide,
                                 .value_dim = kNarrow,
                                 .capacity_tokens = kTokensHere};
  ropewalk_tensor k = tensor(p.k, ROPEWALK_F32, kTokensHere, 2, kWide);
  ropewalk_tensor v = tensor(p.v, ROPEWALK_F32, kTokensHere, 2, kWide);
  float narrow[kOut], d_out[kOut], sums[kTokensHere * 4];
  ropewalk_attention_args args;
  int i;
  make_call(&p, NULL, &c);
  EXPECT_OK(ropewalk_attention(&c.args));
  EXPECT_OK(ropewalk_kv_cache_create_from(&spec, &cache));
  v.shape[2] = kNarrow;
  EXPECT_OK(ropewalk_kv_cache_append(cache, &k, &v));
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  EXPECT_OK(ropewalk_kv_cache_get(cache, &info));
  EXPECT(info.head_dim == kWide && info.value_dim == kNarrow);
  info.size = offsetof(ropewalk_kv_cache_info, value_dim); /* as the first header had it */
  info.value_dim = -1;
  EXPECT_OK(ropewalk_kv_cache_get(cache, &info));
  EXPECT(info.tokens == kTokensHere && info.value_dim == -1);
  args = c.args;
  args.cache = cache;
  EXPECT_REFUSED(ropewalk_attention(&args), "out: expected float32 [tokens, heads, 5]");
  ropewalk_tensor out = tensor(narrow, ROPEWALK_F32, kTokensHere, 4, kWide);
  out.shape[2] = kNarrow;
  args.out = &out;
  args.log_sum_exp = sums;
  EXPECT_OK(ropewalk_attention(&args));
  for (i = 0; i < kOut; ++i) {
    d_out[i] = i % kWide < kNarrow ? p.q[i] : 0;
    if (i % kWide < kNarrow) EXPECT(narrow[i] == c.result[i]);
  }
  expect_width_gradients(&c.args, &args, d_out);
  spec.value_dim = -1;
  EXPECT_REFUSED(ropewalk_kv_cache_create_from(&spec, &c.cache), "value_dim: expected 1 to 32768");
  spec.size = 8;
  EXPECT_REFUSED(ropewalk_kv_cache_create_from(&spec, &c.cache), "spec.size: expected sizeof");
  ropewalk_kv_cache_destroy(cache);
  free_call(&c);
  free_problem(&p);
}

static void test_maps(void) {
  static const ropewalk_distance_map maps[] = {
      {.size = sizeof maps[0]},
      {.size = sizeof maps[0], .kind = ROPEWALK_REROPE, .window = 100},
      {.size = sizeof maps[0], .kind = ROPEWALK_LEAKY_REROPE, .window = 100, .factor = 16},
      {.size = sizeof maps[0], .kind = ROPEWALK_SELF_EXTEND, .window = 100, .group = 8},
      {.size = sizeof maps[0], .kind = ROPEWALK_DUAL_CHUNK, .chunk = 96, .limit = 128},
      {.size = sizeof maps[0], .kind = ROPEWALK_SINKS, .window = 60, .sinks = 4},
      {.size = sizeof maps[0], .kind = ROPEWALK_STRING, .window = 30, .shift = 90},
      {.size = sizeof maps[0],
       .kind = ROPEWALK_LAMPE,
       .head = 60,
       .mapped = 300,
       .tail = 20,
       .length = 700}};
  static const char* const names[] = {"on load",    "rerope", "leaky",  "extend",
                                      "dual chunk", "sinks",  "string", "lampe"};
  int i;
  for (i = 0; i < 8; ++i) {
    problem p = make_problem(2, 1, 8, 300, 700);
    p.base = 10000;
    p.map = maps[i];
    expect_same(&p, NULL, names[i]);
    free_problem(&p);
  }
  for (i = 0; i < 8; ++i) { /* the last token of a million, whose keys lie at all distances */
    problem p = make_problem(1, 1, 4, 1, 1048576);
    p.base = 10000;
    p.map = maps[i];
    expect_same(&p, NULL, names[i]);
    free_problem(&p);
  }
}

static void test_bad_maps(void) {
  ropewalk_spec spec = spec_of(8);
  ropewalk_load_rotation* r = NULL;
  ropewalk_distance_map map;
  memset(&map, 0, sizeof map);
  map.size = sizeof map;
#define EXPECT_BAD_MAP(says) \
  EXPECT_REFUSED(ropewalk_load_rotation_create(&spec, 4096, ROPEWALK_EXACT, &map, &r), says)
  EXPECT_BAD_MAP("map.kind: expected 1 to 8, got 0");
  map.kind = ROPEWALK_REROPE;
  EXPECT_BAD_MAP("Rerope.window");
  map.window = 100;
  map.group = 8;
  EXPECT_BAD_MAP("map.group: a map of kind 1 has none");
  map.group = 0;
  map.window = 4096;
  EXPECT_BAD_MAP("expected distances below 4096");
  map.window = 100;
  spec.method = "dynamic";
  EXPECT_BAD_MAP("dynamic: factor is required");
  spec.method = NULL;
  map.size = 8;
  EXPECT_BAD_MAP("map.size: expected sizeof");
#undef EXPECT_BAD_MAP
  EXPECT_REFUSED(ropewalk_load_rotation_create(NULL, 1, ROPEWALK_EXACT, NULL, &r),
                 "spec: expected");
  EXPECT_REFUSED(ropewalk_load_rotation_create(&spec, 1, 2, NULL, &r), "precision");
  EXPECT_REFUSED(ropewalk_load_rotation_grow(NULL, 1), "rotation: expected a pointer");
}

static void test_bad_calls(void) {
  problem p = make_problem(4, 2, 8, 3, 3);
  call c;
  float half[3 * 4 * 8], nan[] = {0, NAN, 0, 0};
  ropewalk_tensor view = tensor(half, ROPEWALK_F16, 3, 4, 8);
  int i;
  make_call(&p, NULL, &c);
  for (i = 0; i < 3 * 4 * 8; ++i) c.result[i] = 7;
#define EXPECT_BAD(field, value, says)               \
  do {                                               \
    ropewalk_attention_args args = c.args;           \
    args.field = value;                              \
    EXPECT_REFUSED(ropewalk_attention(&args), says); \
  } while (0)
  EXPECT_BAD(size, 8, "args.size: expected sizeof of the struct");
  EXPECT_BAD(q, NULL, "q: expected a pointer, got NULL");
  EXPECT_BAD(out, NULL, "out: expected a pointer");
  EXPECT_BAD(cache, NULL, "cache: expected a pointer");
  EXPECT_BAD(q, &view, "q: expected float32 [tokens, heads, 8]");
  EXPECT_BAD(mask, 2, "mask: expected 0 to 1, got 2");
  EXPECT_BAD(scale, -1, "scale: expected a finite number above 0");
  EXPECT_BAD(scale, NAN, "scale: expected a finite number above 0");
  EXPECT_BAD(soft_cap, -1, "soft_cap");
  EXPECT_BAD(window_tokens, -1, "window_tokens");
  EXPECT_BAD(sinks, nan, "sinks: expected finite numbers");
  EXPECT_BAD(num_documents, 1, "document_starts: a list of 1 elements at NULL");
#undef EXPECT_BAD
  EXPECT_REFUSED(ropewalk_attention(NULL), "args: expected a pointer");
  for (i = 0; i < 3 * 4 * 8; ++i) EXPECT(c.result[i] == 7);
  EXPECT_REFUSED(ropewalk_kv_cache_append(c.cache, &c.q, &c.q), "k: expected float32 [3, 2, 8]");
  view = tensor(p.k, ROPEWALK_F32, 3, 2, 8);
  EXPECT_REFUSED(ropewalk_kv_cache_append(c.cache, &view, &view), "cannot take 3 more");
  EXPECT_REFUSED(ropewalk_kv_cache_create(0, 8, 1, &c.cache), "1 to 32768 kv_heads");
  EXPECT_REFUSED(ropewalk_kv_cache_append(NULL, &c.q, &c.q), "cache: expected a pointer");
  free_call(&c);
  free_problem(&p);
}

/* Structs of a later version: accepted while what they add is zero. */
static void test_sizes(void) {
  struct {
    ropewalk_attention_args args;
    int64_t added;
  } later;
  problem p = make_problem(1, 1, 4, 2, 2);
  call c;
  make_call(&p, NULL, &c);
  memset(&later, 0, sizeof later);
  later.args = c.args;
  later.args.size = sizeof later;
  EXPECT_OK(ropewalk_attention(&later.args));
  later.added = 1;
  EXPECT_REFUSED(ropewalk_attention(&later.args), "does not know is set");
  free_call(&c);
  free_problem(&p);
}

/* A program built before the entropy of rows: its struct ends there, and what lies behind is no
 * part of it. */
static void test_older_header(void) {
  enum { kOlder = offsetof(ropewalk_attention_args, entropy) };
  problem p = make_problem(4, 2, 8, 20, 20);
  call c;
  float want[20 * 4 * 8];
  union {
    char bytes[sizeof(ropewalk_attention_args)];
    ropewalk_attention_args args;
  } older;
  size_t size;
  EXPECT(kOlder == 144);
  make_call(&p, NULL, &c);
  EXPECT_OK(ropewalk_attention(&c.args));
  memcpy(want, c.result, sizeof want);
  memset(c.result, 0, sizeof want);
  memset(older.bytes, 0xff, sizeof older);
  memcpy(older.bytes, &c.args, kOlder);
  older.args.size = kOlder;
  EXPECT_OK(ropewalk_attention(&older.args));
  EXPECT(memcmp(want, c.result, sizeof want) == 0);
  for (size = 8; size < sizeof older; ++size) {
    older.args.size = size;
    if (size != kOlder) EXPECT_REFUSED(ropewalk_attention(&older.args), "args.size");
  }
  free_call(&c);
  free_problem(&p);
}

int main(void) {
  test_masks();
  test_decoding();
  test_value_widths();
  test_older_header();
  test_maps();
  test_bad_maps();
  test_bad_calls();
  test_sizes();
  test_forms();
  test_gradients();
  test_huge_sizes();
  ropewalk_kv_cache_destroy(NULL);
  ropewalk_form_destroy(NULL);
  ropewalk_load_rotation_destroy(NULL);
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures > 0;
}
