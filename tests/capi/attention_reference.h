/* Attention with everything that ropewalk_attention.h has, typed again in double with loops over
 * all pairs: what the tests of the C interface compare with, and what they take differences of. */
#ifndef TESTS_CAPI_ATTENTION_REFERENCE_H_
#define TESTS_CAPI_ATTENTION_REFERENCE_H_

#include "ropewalk/ropewalk_attention.h"
#include "tests/capi/capi_test.h"

enum { kMostHeads = 4, kMostDim = 8 };

typedef struct problem {
  int64_t heads, kv_heads, dim, queries, keys;
  float *q, *k, *v; /* [queries, heads, dim], [keys, kv_heads, dim] twice */
  double scale, cap;
  int bidirectional;
  int64_t window;
  const int64_t *query_positions, *key_positions; /* NULL: the last keys; counted from 0 */
  const int64_t* starts;                          /* of documents, queries are the last keys */
  int64_t num_starts;
  ropewalk_form_spec form; /* kind 0: none */
  ropewalk_distance_map map;
  double base;  /* of the rotation on load; 0: none */
  float* sinks; /* [heads] */
  float* temperatures;
} problem;

static inline int64_t key_position(const problem* p, int64_t j) {
  return p->key_positions == NULL ? j : p->key_positions[j];
}
static inline int64_t query_position(const problem* p, int64_t t) {
  return p->query_positions != NULL ? p->query_positions[t]
                                    : key_position(p, p->keys - p->queries + t);
}

static inline int sees(const problem* p, int64_t t, int64_t j) {
  const int64_t i = query_position(p, t), at = key_position(p, j), d = i - at;
  int64_t n, document = -1, own = -1;
  for (n = 0; n < p->num_starts; ++n) {
    if (p->starts[n] <= j) document = n;
    if (p->starts[n] <= p->keys - p->queries + t) own = n;
  }
  if (document != own) return 0;
  if (!p->bidirectional && d < 0) return 0;
  if (p->window > 0 && (d >= p->window || -d >= p->window)) return 0;
  if (p->map.kind == ROPEWALK_SINKS && j >= p->map.sinks && d >= p->map.window) return 0;
  return 1;
}

/* The distance at which a pair is rotated. */
static inline double mapped(const ropewalk_distance_map* m, int64_t i, int64_t j) {
  const int64_t d = i - j;
  switch (m->kind) {
    case ROPEWALK_REROPE:
      return (double)(d < m->window ? d : m->window);
    case ROPEWALK_LEAKY_REROPE:
      return d < m->window ? (double)d
                           : (double)m->window + (double)(d - m->window) / (double)m->factor;
    case ROPEWALK_SELF_EXTEND:
      if (d < m->window) return (double)d;
      return (double)(i / m->group + m->window - m->window / m->group - j / m->group);
    case ROPEWALK_DUAL_CHUNK: {
      const int64_t ahead = i % m->chunk + m->chunk, chunks = i / m->chunk - j / m->chunk;
      const int64_t at = chunks == 0                       ? i % m->chunk
                         : chunks == 1 && ahead < m->limit ? ahead
                                                           : m->limit;
      return (double)(at - j % m->chunk);
    }
    case ROPEWALK_LAMPE: {
      const int64_t n = m->length - 1, last = n - m->tail,
                    join = m->head - 1 - m->head * m->mapped / n;
      if (d < m->head) return (double)d;
      if (d > last) return (double)(d - last + last * m->mapped / n + join);
      return (double)(i * m->mapped / n + join - j * m->mapped / n);
    }
    case ROPEWALK_STRING:
      return (double)(d < m->shift ? d : d - m->shift + m->window);
    case ROPEWALK_SINKS: {
      const int64_t last = m->sinks + m->window - 1, at = i < last ? i : last;
      return (double)(d < m->window ? d : at - j);
    }
    default:
      return (double)d;
  }
}

static inline const float* query(const problem* p, int64_t t, int64_t h) {
  return p->q + (t * p->heads + h) * p->dim;
}
static inline const float* key(const problem* p, int64_t j, int64_t h) {
  return p->k + (j * p->kv_heads + h / (p->heads / p->kv_heads)) * p->dim;
}
static inline double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  int64_t i;
  for (i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

static inline double product(const problem* p, int64_t t, int64_t h, int64_t j) {
  const float *q = query(p, t, h), *k = key(p, j, h);
  const int64_t half = p->dim / 2;
  double sum = 0, d;
  int64_t n;
  if (p->base == 0) return dot(q, k, p->dim);
  d = mapped(&p->map, query_position(p, t), j);
  for (n = 0; n < half; ++n) {
    const double angle = d * pow(p->base, -2.0 * (double)n / (double)p->dim);
    const double c = cos(angle), s = sin(angle);
    sum += (q[n] * c - q[n + half] * s) * k[n] + (q[n + half] * c + q[n] * s) * k[n + half];
  }
  return sum;
}

/* The row of a distance: the nearest beyond the ends. */
static inline int64_t column(const ropewalk_form_spec* f, int64_t d) {
  const int64_t x = d - f->first;
  return x < 0 ? 0 : x >= f->columns ? f->columns - 1 : x;
}
static inline const float* row(const ropewalk_form_spec* f, const float* rows, int64_t h,
                               int64_t r) {
  return rows + ((f->table_heads > 1 ? h : 0) * f->rows + r) * f->head_dim;
}

static inline double contextual(const problem* p, double scale, int64_t t, int64_t h, int64_t j) {
  const ropewalk_form_spec* f = &p->form;
  double count = 0, most = (double)(f->rows - 1), part;
  int64_t l, low;
  for (l = j; l <= p->keys - p->queries + t; ++l) {
    count += 1 / (1 + exp(-scale * product(p, t, h, l)));
  }
  if (count > most) count = most;
  low = (int64_t)count;
  if (low == f->rows - 1) --low;
  part = count - (double)low;
  return (1 - part) * dot(query(p, t, h), row(f, f->position_rows, h, low), p->dim) +
         part * dot(query(p, t, h), row(f, f->position_rows, h, low + 1), p->dim);
}

static inline double content(const problem* p, double scale, int64_t t, int64_t h, int64_t j,
                             int64_t r) {
  const ropewalk_form_spec* f = &p->form;
  double sum = 0;
  if (f->query_rows != NULL) sum += dot(query(p, t, h), row(f, f->query_rows, h, r), p->dim);
  if (f->query_rows != NULL && f->query_bias != NULL) {
    sum += dot(f->query_bias + h * p->dim, row(f, f->query_rows, h, r), p->dim);
  }
  if (f->key_rows != NULL) sum += dot(key(p, j, h), row(f, f->key_rows, h, r), p->dim);
  if (f->key_bias != NULL) sum += dot(f->key_bias + h * p->dim, key(p, j, h), p->dim);
  return scale * sum;
}

static inline double bias(const problem* p, double scale, int64_t t, int64_t h, int64_t j) {
  const ropewalk_form_spec* f = &p->form;
  const int64_t i = query_position(p, t), at = key_position(p, j), d = i - at;
  double sum = 0;
  float one;
  int64_t l;
  switch (f->kind) {
    case ROPEWALK_SLOPE:
      return d >= 0 ? -(double)f->behind[h] * (double)d : (double)f->ahead[h] * (double)d;
    case ROPEWALK_DISTANCE:
      return f->values[h * f->columns + column(f, d)];
    case ROPEWALK_CONTENT:
      return content(p, scale, t, h, j, f->row_of[column(f, d)]);
    case ROPEWALK_PAIR:
      f->pair_bias(f->pair_context, h, &i, 1, &at, 1, &one, 1);
      return one;
    case ROPEWALK_GATES:
      for (l = j + 1; l <= p->keys - p->queries + t; ++l) sum += f->log_gates[l * p->heads + h];
      return sum;
    case ROPEWALK_CONTEXTUAL:
      return contextual(p, scale, t, h, j);
    default:
      return 0;
  }
}

/* out: [queries, heads, dim]; log_sum_exp and entropy (or NULL): [queries, heads]. */
static inline void reference(const problem* p, double* out, double* log_sum_exp, double* entropy) {
  double* scores = malloc((size_t)p->keys * sizeof *scores);
  int64_t t, h, j, n;
  for (t = 0; t < p->queries; ++t) {
    for (h = 0; h < p->heads; ++h) {
      double* o = out + (t * p->heads + h) * p->dim;
      const double scale = p->scale * (p->temperatures == NULL ? 1 : p->temperatures[t]);
      double top = p->sinks == NULL ? -INFINITY : p->sinks[h], sum = 0, weighted = 0;
      for (j = 0; j < p->keys; ++j) {
        if (!sees(p, t, j)) continue;
        scores[j] = scale * product(p, t, h, j) + bias(p, scale, t, h, j);
        if (p->cap > 0) scores[j] = p->cap * tanh(scores[j] / p->cap);
        if (scores[j] > top) top = scores[j];
      }
      if (p->sinks != NULL) {
        sum = exp(p->sinks[h] - top);
        weighted = sum * (p->sinks[h] - top);
      }
      for (n = 0; n < p->dim; ++n) o[n] = 0;
      for (j = 0; j < p->keys; ++j) {
        const float* value = p->v + (j * p->kv_heads + h / (p->heads / p->kv_heads)) * p->dim;
        const ropewalk_form_spec* f = &p->form;
        double weight;
        const float* more = NULL;
        if (!sees(p, t, j)) continue;
        weight = exp(scores[j] - top);
        sum += weight;
        weighted += weight * (scores[j] - top);
        if (f->kind == ROPEWALK_CONTENT && f->value_rows != NULL) {
          const int64_t d = query_position(p, t) - key_position(p, j);
          more = row(f, f->value_rows, h, f->row_of[column(f, d)]);
        }
        for (n = 0; n < p->dim; ++n) o[n] += weight * (value[n] + (more == NULL ? 0 : more[n]));
      }
      for (n = 0; n < p->dim; ++n) o[n] /= sum > 0 ? sum : 1;
      log_sum_exp[t * p->heads + h] = top + log(sum);
      if (entropy != NULL) entropy[t * p->heads + h] = sum > 0 ? log(sum) - weighted / sum : 0;
    }
  }
  free(scores);
}

#endif /* TESTS_CAPI_ATTENTION_REFERENCE_H_ */
