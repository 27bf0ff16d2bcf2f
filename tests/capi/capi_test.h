/* What the tests of ropewalk.h share. */
#ifndef TESTS_CAPI_CAPI_TEST_H_
#define TESTS_CAPI_CAPI_TEST_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ropewalk/ropewalk.h"

extern int failures;

static inline void expect(int ok, const char* what, const char* file, int line) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, what, ropewalk_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __FILE__, __LINE__)
#define EXPECT_OK(call) expect((call) == ROPEWALK_OK, #call, __FILE__, __LINE__)
#define EXPECT_NEAR(a, b, tolerance) \
  expect(fabs((a) - (b)) <= (tolerance), #a " near " #b, __FILE__, __LINE__)

/* The call fails with this code and says this. */
static inline void expect_refused(ropewalk_status got, ropewalk_status code, const char* says,
                                  const char* file, int line) {
  if (got == code && strstr(ropewalk_last_error(), says) != NULL) return;
  ++failures;
  fprintf(stderr, "%s:%d: status %d, expected %d with \"%s\", said: %s\n", file, line, (int)got,
          (int)code, says, ropewalk_last_error());
}
#define EXPECT_REFUSED(call, says) \
  expect_refused((call), ROPEWALK_INVALID_ARGUMENT, (says), __FILE__, __LINE__)

static inline ropewalk_spec spec_of(int64_t head_dim) {
  ropewalk_spec spec;
  memset(&spec, 0, sizeof spec);
  spec.size = sizeof spec;
  spec.layout = ROPEWALK_HALF;
  spec.head_dim = head_dim;
  spec.trained_length = 4096;
  return spec;
}

static inline ropewalk_frequencies* plain(int64_t head_dim) {
  const ropewalk_spec spec = spec_of(head_dim);
  ropewalk_frequencies* f = NULL;
  EXPECT_OK(ropewalk_frequencies_create(&spec, 4096, &f));
  return f;
}

static inline ropewalk_positions start_at(int64_t start) {
  ropewalk_positions p;
  memset(&p, 0, sizeof p);
  p.size = sizeof p;
  p.start = start;
  return p;
}

static inline ropewalk_tensor tensor(void* data, int32_t dtype, int64_t tokens, int64_t heads,
                                     int64_t dim) {
  const int64_t shape[] = {tokens, heads, dim};
  ropewalk_tensor t;
  ropewalk_tensor_init(&t, data, dtype, 3, shape);
  return t;
}

static inline ropewalk_rotate_args rotate_args(const ropewalk_positions* positions,
                                               const ropewalk_tensor* q) {
  ropewalk_rotate_args a;
  memset(&a, 0, sizeof a);
  a.size = sizeof a;
  a.layout = ROPEWALK_HALF;
  a.positions = positions;
  a.q = q;
  return a;
}

void test_cuda(void);          /* capi_cuda_test.c */
void test_older_headers(void); /* capi_older_test.c */
void test_huge_sizes(void);    /* capi_sizes_test.c, attention_sizes_test.c */

#endif /* TESTS_CAPI_CAPI_TEST_H_ */
