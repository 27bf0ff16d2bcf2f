/* Rotates the query and key of one token of a decode step, then moves the cached key to make room:
 * what an engine written in C does with Ropewalk. Build: cc rotate.c $(pkg-config --cflags --libs
 * ropewalk-capi), or with find_package(ropewalk), target ropewalk::capi. */
#include <stdio.h>
#include <stdlib.h>

#include "ropewalk/ropewalk.h"

static void check(ropewalk_status status) {
  if (status == ROPEWALK_OK) return;
  fprintf(stderr, "ropewalk: %s\n", ropewalk_last_error());
  exit(1);
}

int main(void) {
  /* Qwen 2.5 with YaRN, as its model card says: 4 times 32768 tokens. */
  const ropewalk_parameter factor = {"factor", 4};
  ropewalk_spec spec = {0};
  spec.size = sizeof spec;
  spec.layout = ROPEWALK_HALF;
  spec.head_dim = 128;
  spec.base = 1000000;
  spec.trained_length = 32768;
  spec.method = "yarn";
  spec.parameters = &factor;
  spec.num_parameters = 1;
  ropewalk_frequencies* frequencies = NULL;
  check(ropewalk_frequencies_create(&spec, 131072, &frequencies));

  enum { kHeads = 28, kKvHeads = 4, kHeadDim = 128 };
  static float q[kHeads * kHeadDim], k[kKvHeads * kHeadDim];
  for (int i = 0; i < kHeads * kHeadDim; ++i) q[i] = 1;
  for (int i = 0; i < kKvHeads * kHeadDim; ++i) k[i] = 1;
  const int64_t q_shape[] = {1, kHeads, kHeadDim}, k_shape[] = {1, kKvHeads, kHeadDim};
  ropewalk_tensor q_view, k_view;
  ropewalk_tensor_init(&q_view, q, ROPEWALK_F32, 3, q_shape);
  ropewalk_tensor_init(&k_view, k, ROPEWALK_F32, 3, k_shape);

  ropewalk_positions at = {0};
  at.size = sizeof at;
  at.kind = ROPEWALK_START;
  at.start = 100000;
  ropewalk_rotate_args rotate = {0};
  rotate.size = sizeof rotate;
  rotate.layout = ROPEWALK_HALF;
  rotate.frequencies = frequencies; /* or a table, for many tokens at positions that come again */
  rotate.positions = &at;
  rotate.q = &q_view;
  rotate.k = &k_view;
  check(ropewalk_rotate(&rotate));
  printf("q[0] at 100000: %.6f\n", q[0]);

  /* The first 4096 tokens leave the context: what is cached moves forward by as many. */
  ropewalk_rerotate_args shift = {0};
  shift.size = sizeof shift;
  shift.layout = ROPEWALK_HALF;
  shift.frequencies = frequencies;
  shift.delta = -4096;
  shift.keys = &k_view;
  check(ropewalk_rerotate(&shift));
  printf("k[0] at 95904:  %.6f\n", k[0]);

  ropewalk_frequencies_destroy(frequencies);
  return 0;
}
