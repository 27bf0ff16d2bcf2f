/* Ropewalk for C: attention with score biases, fused RoPE and distance maps, and its gradient.
 * The functions are documented, with formulas and error bounds, in the C++ headers named above each
 * group. Structs, codes and errors are as in ropewalk.h. Tensors are float32 in CPU memory with
 * last stride 1 and any other strides; threads are OpenMP's. Rotation alone needs only ropewalk.h.
 */
#ifndef ROPEWALK_ROPEWALK_ATTENTION_H_
#define ROPEWALK_ROPEWALK_ATTENTION_H_

#include "ropewalk/ropewalk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* attention/attention.h, class KvCache */
typedef struct ropewalk_kv_cache ropewalk_kv_cache;
typedef struct ropewalk_kv_cache_info {
  size_t size;
  int64_t tokens, capacity_tokens;
  int64_t kv_heads, head_dim;
  int64_t bytes;
  int64_t value_dim;
} ropewalk_kv_cache_info;
ropewalk_status ropewalk_kv_cache_create(int64_t kv_heads, int64_t head_dim,
                                         int64_t capacity_tokens, ropewalk_kv_cache** out);
/* The same with values of another width than keys (multi-head latent attention). */
typedef struct ropewalk_kv_cache_spec {
  size_t size;
  int64_t kv_heads, head_dim; /* required */
  int64_t value_dim;          /* 0: head_dim */
  int64_t capacity_tokens;
} ropewalk_kv_cache_spec;
ropewalk_status ropewalk_kv_cache_create_from(const ropewalk_kv_cache_spec* spec,
                                              ropewalk_kv_cache** out);
/* k: [tokens, kv_heads, head_dim]; v: [tokens, kv_heads, value_dim] */
ropewalk_status ropewalk_kv_cache_append(ropewalk_kv_cache* cache, const ropewalk_tensor* k,
                                         const ropewalk_tensor* v);
/* Keeps the first `tokens` tokens. */
ropewalk_status ropewalk_kv_cache_truncate(ropewalk_kv_cache* cache, int64_t tokens);
ropewalk_status ropewalk_kv_cache_get(const ropewalk_kv_cache* cache, ropewalk_kv_cache_info* out);
void ropewalk_kv_cache_destroy(ropewalk_kv_cache* cache);

/* relative/forms.h: the five forms of a bias. distance = position of query - position of key.
 * Fields of another kind must be NULL or 0. */
/* form; 0 is an error */
enum {
  ROPEWALK_SLOPE = 1,     /* -slope |distance| */
  ROPEWALK_DISTANCE = 2,  /* values[head][distance - first] */
  ROPEWALK_CONTENT = 3,   /* products with rows of a table, selected by distance */
  ROPEWALK_PAIR = 4,      /* a function of the positions of query and key */
  ROPEWALK_GATES = 5,     /* the sum of logarithms of gates between key and query */
  ROPEWALK_CONTEXTUAL = 6 /* CoPE: rows selected by positions that depend on content */
};
/* out[r * stride + c]: the bias of query position queries[r] and key position keys[c], which both
 * ascend. Called from several threads at once. */
typedef void (*ropewalk_pair_bias)(void* context, int64_t head, const int64_t* queries,
                                   int64_t num_queries, const int64_t* keys, int64_t num_keys,
                                   float* out, int64_t stride);
/* gradient[pair_parameters] += d(loss) / d(parameter), from d_bias = d(loss) / d(bias) of these
 * positions. Called from several threads at once, each with its own gradient. */
typedef void (*ropewalk_pair_gradient)(void* context, int64_t head, const int64_t* queries,
                                       int64_t num_queries, const int64_t* keys, int64_t num_keys,
                                       const float* d_bias, int64_t stride, double* gradient);
typedef struct ropewalk_form_spec {
  size_t size;
  int32_t kind;        /* required */
  int64_t heads;       /* required: query heads, up to 65536 */
  int64_t head_dim;    /* required, up to 32768 */
  const float* behind; /* SLOPE: [heads], for distance >= 0 */
  const float* ahead;  /* SLOPE: [heads], for distance < 0; NULL: for a causal mask only */
  int64_t first;       /* DISTANCE, CONTENT: the distance of column 0, within 2^53 */
  int64_t columns;     /* DISTANCE, CONTENT: the number of distances from there on */
  /* 1: distances beyond that end have the end's value; 0: attention refuses them. */
  int32_t repeats_ahead, repeats_behind;
  const float* values;     /* DISTANCE: [heads, columns] */
  const int32_t* row_of;   /* CONTENT: [columns], below rows */
  int64_t rows;            /* CONTENT, CONTEXTUAL */
  int64_t table_heads;     /* CONTENT, CONTEXTUAL: heads, or 0 or 1: all share the rows */
  const float* query_rows; /* CONTENT: [table_heads, rows, head_dim], each may be NULL */
  const float* key_rows;
  const float* value_rows;
  const float* query_bias; /* CONTENT: [heads, head_dim], may be NULL */
  const float* key_bias;
  ropewalk_pair_bias pair_bias;         /* PAIR */
  ropewalk_pair_gradient pair_gradient; /* PAIR; NULL: nothing is learned */
  void* pair_context;
  int64_t pair_parameters;    /* PAIR: size of pair_gradient's gradient */
  int64_t pair_positions;     /* PAIR: defined for 0 .. pair_positions - 1; 0: for all */
  const float* log_gates;     /* GATES: [gate_tokens, heads], of all keys of the cache */
  int64_t gate_tokens;        /* GATES: the number of tokens of the cache */
  const float* position_rows; /* CONTEXTUAL: [table_heads, rows, head_dim] */
} ropewalk_form_spec;
/* Arrays are copied; pair_context must outlive the handle. */
typedef struct ropewalk_form ropewalk_form;
ropewalk_status ropewalk_form_create(const ropewalk_form_spec* spec, ropewalk_form** out);
void ropewalk_form_destroy(ropewalk_form* form);

/* The form of a bias that depends on distance: relative/alibi.h, t5.h, kerple.h and sandwich.h.
 *   method    parameters                                       values
 *   alibi     rule, ahead, max_bias, scale, bfloat16           NULL, or learned slopes [heads]
 *   t5        buckets, last_distance, bidirectional            embedding [buckets, heads]
 *   kerple    kernel (0: power, 1: log), causal                r1, then r2: [2, heads]
 *   sandwich  dim, base, causal                                NULL
 * Parameters are fields of the method's struct with its defaults, enums as their number. */
typedef struct ropewalk_bias {
  size_t size;
  const char* method;   /* required */
  int64_t heads;        /* required: query heads, up to 65536 */
  int64_t head_dim;     /* required, up to 32768 */
  int64_t max_distance; /* the largest distance of the calls, up to 2^30 */
  const ropewalk_parameter* parameters;
  int64_t num_parameters;
  const float* values;
  int64_t num_values;
} ropewalk_bias;
ropewalk_status ropewalk_form_lower(const ropewalk_bias* bias, ropewalk_form** out);

/* relative/distance_map.h; fields of another kind must be 0, those of this one are required. */
/* kind; 0 is an error */
enum {
  ROPEWALK_REROPE = 1,
  ROPEWALK_LEAKY_REROPE = 2,
  ROPEWALK_SELF_EXTEND = 3,
  ROPEWALK_DUAL_CHUNK = 4,
  ROPEWALK_SINKS = 5,
  ROPEWALK_STRING = 6,
  ROPEWALK_LAMPE = 7,
  ROPEWALK_DPE = 8
};
typedef struct ropewalk_distance_map {
  size_t size;
  int32_t kind;
  int64_t window;                     /* all but DUAL_CHUNK and LAMPE */
  int64_t factor;                     /* LEAKY_REROPE */
  int64_t group;                      /* SELF_EXTEND */
  int64_t chunk;                      /* DUAL_CHUNK */
  int64_t limit;                      /* DUAL_CHUNK */
  int64_t sinks;                      /* SINKS */
  int64_t shift;                      /* STRING */
  int64_t head, mapped, tail, length; /* LAMPE */
  /* DPE: of the eight shares of the pairs */
  int64_t group1, group2, group3, group4, group5, group6, group7, group8;
} ropewalk_distance_map;

/* attention/load_rotation.h: fused RoPE, which rotates queries and cached keys as attention loads
 * them. */
typedef struct ropewalk_load_rotation ropewalk_load_rotation;
/* Frequencies are those of `spec` at `length`; map: NULL for plain distances. */
ropewalk_status ropewalk_load_rotation_create(const ropewalk_spec* spec, int64_t length,
                                              int32_t precision, const ropewalk_distance_map* map,
                                              ropewalk_load_rotation** out);
/* Extends the tables to `tokens` keys; call it before attention reads as many. */
ropewalk_status ropewalk_load_rotation_grow(ropewalk_load_rotation* rotation, int64_t tokens);
void ropewalk_load_rotation_destroy(ropewalk_load_rotation* rotation);

/* attention/attention.h */
enum { ROPEWALK_CAUSAL = 0, ROPEWALK_BIDIRECTIONAL = 1 };
typedef struct ropewalk_attention_args {
  size_t size;
  const ropewalk_tensor* q;       /* required: [tokens, heads, head_dim] */
  const ropewalk_tensor* out;     /* required: [tokens, heads, value_dim]; may be q */
  const ropewalk_kv_cache* cache; /* required: holds the keys of q already */
  float scale;                    /* multiplies q . k; 0: 1 / sqrt(head_dim) */
  float soft_cap;                 /* 0: none */
  int32_t mask;
  int64_t window_tokens;                  /* sliding window: |distance| < it; 0: none */
  const ropewalk_form* form;              /* NULL: no bias */
  const ropewalk_load_rotation* rotation; /* NULL: q and the cache's keys are rotated already */
  const float* sinks;                     /* [heads]; NULL: none */
  const float* temperatures;              /* [tokens], multiply the scale; NULL: none */
  const int64_t* query_positions;         /* [tokens]; NULL: of the last tokens of the cache */
  const int64_t* key_positions;           /* [tokens of the cache]; NULL: 0, 1, 2, ... */
  const int64_t* document_starts;         /* [num_documents], indices of keys; NULL: one document */
  int64_t num_documents;
  const int64_t* query_document_starts; /* [num_query_documents], with query_positions */
  int64_t num_query_documents;
  float* log_sum_exp; /* [tokens, heads], for the gradient; NULL: not wanted */
  float* entropy;     /* [tokens, heads], of each query's weights in nats; NULL: not wanted */
} ropewalk_attention_args;
ropewalk_status ropewalk_attention(const ropewalk_attention_args* args);

/* attention/backward.h. Each is NULL or an array of the size that the form's field of the same name
 * has; log_gates: [tokens of the cache, heads]. */
typedef struct ropewalk_form_gradient {
  size_t size;
  float* behind;
  float* ahead;
  float* values;
  float* query_rows;
  float* key_rows;
  float* value_rows;
  float* query_bias;
  float* key_bias;
  double* pair_parameters;
  float* log_gates;
  float* position_rows;
} ropewalk_form_gradient;
typedef struct ropewalk_attention_backward_args {
  size_t size;
  /* required: of the finished call, with q, out (which is not q) and log_sum_exp unchanged */
  const ropewalk_attention_args* forward;
  const ropewalk_tensor* d_out;         /* required: as out */
  const ropewalk_tensor* d_q;           /* required: as q */
  const ropewalk_tensor* d_k;           /* required: [tokens of the cache, kv_heads, head_dim] */
  const ropewalk_tensor* d_v;           /* required: the same, of value_dim */
  const ropewalk_form_gradient* d_form; /* NULL: not wanted */
  float* d_sinks;                       /* [heads]; NULL: not wanted */
} ropewalk_attention_backward_args;
/* All gradients are overwritten. */
ropewalk_status ropewalk_attention_backward(const ropewalk_attention_backward_args* args);
/* out: [num_values], d(loss) / d(values) of the bias, from the gradient of its form: behind (and
 * ahead, where the form has it) for alibi, values for t5 and kerple. */
ropewalk_status ropewalk_bias_gradient(const ropewalk_bias* bias,
                                       const ropewalk_form_gradient* d_form, double* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ROPEWALK_ROPEWALK_ATTENTION_H_ */
