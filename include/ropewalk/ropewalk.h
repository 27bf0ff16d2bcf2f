/* Ropewalk for C: exact rotary position embeddings, and the ops around them. The functions are
 * documented, with formulas and error bounds, in the C++ headers named above each group.
 *
 * Every struct begins with `size`, which the caller sets to sizeof of the struct; every other field
 * may be zero where its comment gives a default. A program built against an older header keeps
 * working: the size tells its layout, and fields that it lacks have their defaults. A field that
 * the library does not know is an error unless it is zero. Functions return ROPEWALK_OK or an error
 * code; ropewalk_last_error() has the message. Nothing is written when a call fails. Several
 * threads may read a handle at once. */
#ifndef ROPEWALK_ROPEWALK_H_
#define ROPEWALK_ROPEWALK_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t ropewalk_status;
enum {
  ROPEWALK_OK = 0,
  ROPEWALK_INVALID_ARGUMENT = 1,
  ROPEWALK_INVALID_FILE = 2,
  ROPEWALK_INVALID_CONFIG = 3,
  ROPEWALK_UNSUPPORTED = 4, /* well formed, but nothing here computes it */
  ROPEWALK_IO = 5,
  ROPEWALK_MISMATCH = 6,
  ROPEWALK_OUT_OF_MEMORY = 7,
  ROPEWALK_INTERNAL = 8
};
const char* ropewalk_version(void); /* major.minor.patch */
/* The message of the last failed call of this thread; "" if none failed. Valid until the next
 * failure. */
const char* ropewalk_last_error(void);

/* base/cuda.h. GPU memory is that of the current GPU (cudaSetDevice). A stream is a cudaStream_t;
 * NULL is the default stream. */
/* device */
enum { ROPEWALK_CPU = 0, ROPEWALK_CUDA = 1 };
typedef struct ropewalk_cuda_device {
  const char* name;
  int32_t major, minor; /* compute capability */
  int64_t memory_bytes;
  int32_t multiprocessors;
} ropewalk_cuda_device;
typedef struct ropewalk_cuda_info {
  size_t size;
  const char* toolkit;                 /* "13.0"; "": built without CUDA */
  const char* targets;                 /* "sm_80 sm_90 sm_100 ptx_80" */
  const char* driver;                  /* newest CUDA that the driver supports; "": none */
  const char* why_none;                /* why there is no device; "" if there is */
  const ropewalk_cuda_device* devices; /* [num_devices], those that the library has code for */
  int64_t num_devices;
} ropewalk_cuda_info;
/* The pointers are valid until the next call of this thread. Call it before a CUDA graph is
 * captured. */
ropewalk_status ropewalk_cuda_find(ropewalk_cuda_info* out);
/* Waits for `stream`. Returns an error that names a position outside its table or a slot outside
 * its cache if an operation since the last call met one. */
ropewalk_status ropewalk_cuda_synchronize(void* stream);

/* rotary/spec.h */
/* layout; 0 is an error */
enum { ROPEWALK_HALF = 1, ROPEWALK_INTERLEAVED = 2 };
/* dialect */
enum {
  ROPEWALK_NATIVE = 0,
  ROPEWALK_PAPER = 1,
  ROPEWALK_HUGGING_FACE = 2,
  ROPEWALK_VLLM = 3,
  ROPEWALK_LLAMACPP = 4,
  ROPEWALK_MEGATRON = 5,
  ROPEWALK_YARN_REPO = 6
};
/* axis order */
enum { ROPEWALK_CHUNKED = 0, ROPEWALK_INTERLEAVED_AXES = 1, ROPEWALK_ERNIE_AXES = 2 };
/* angle precision */
enum { ROPEWALK_EXACT = 0, ROPEWALK_FLOAT32 = 1 };
/* dtype; F8_E4M3 for KV caches only */
enum {
  ROPEWALK_F64 = 0,
  ROPEWALK_F32 = 1,
  ROPEWALK_F16 = 2,
  ROPEWALK_BF16 = 3,
  ROPEWALK_F8_E4M3 = 4
};

typedef struct ropewalk_parameter {
  const char* name; /* a field of the method's struct in rotary/spec.h: "factor", "beta_fast" */
  double value;     /* 0 or 1 for switches */
} ropewalk_parameter;

typedef struct ropewalk_xpos {
  size_t size;
  double scale_base; /* 0: 512 */
  double gamma;      /* 0: 0.4 */
  double centre;     /* position */
} ropewalk_xpos;

typedef struct ropewalk_spec {
  size_t size;
  int32_t layout; /* required */
  int32_t dialect;
  int64_t head_dim;   /* required */
  int64_t rotary_dim; /* 0: head_dim */
  int64_t first_dim;
  double base; /* 0: 10000 */
  int64_t trained_length;
  const char* method; /* "none" (or NULL), "linear", "yarn", "longrope", ...; errors list them */
  const ropewalk_parameter* parameters; /* each name once; required where a method has a factor */
  int64_t num_parameters;
  const double* factors;      /* [num_factors] longrope: short_factor; explicit: divisors */
  const double* long_factors; /* [num_factors] longrope */
  int64_t num_factors;
  const int64_t* sections; /* [num_sections] pairs of each axis; NULL: one axis */
  int64_t num_sections;
  int32_t axis_order;
  int32_t own_ladders;
  const ropewalk_xpos* xpos; /* NULL: none */
} ropewalk_spec;

/* rotary/frequencies.h */
typedef struct ropewalk_frequencies ropewalk_frequencies;
typedef struct ropewalk_frequencies_info {
  size_t size;
  int64_t pairs;
  int64_t axes;
  double amplitude;
  double softmax_multiplier;
  const double* inv_freq;    /* [pairs], radians per position, rounded to double */
  const float* inv_freq_f32; /* [pairs], as Hugging Face computes it */
  const uint8_t* axis;       /* [pairs], the position axis of each; NULL: all 0 */
} ropewalk_frequencies_info;
ropewalk_status ropewalk_frequencies_create(const ropewalk_spec* spec, int64_t length,
                                            ropewalk_frequencies** out);
/* The pointers are valid as long as the handle. */
ropewalk_status ropewalk_frequencies_get(const ropewalk_frequencies* frequencies,
                                         ropewalk_frequencies_info* out);
void ropewalk_frequencies_destroy(ropewalk_frequencies* frequencies);

/* rotary/table.h */
typedef struct ropewalk_table ropewalk_table;
ropewalk_status ropewalk_table_create(const ropewalk_frequencies* frequencies, int64_t first,
                                      int64_t count, int32_t precision, ropewalk_table** out);
/* In memory of the current GPU, for calls on tensors there; waits for `stream`. */
ropewalk_status ropewalk_table_create_cuda(const ropewalk_frequencies* frequencies, int64_t first,
                                           int64_t count, int32_t precision, void* stream,
                                           ropewalk_table** out);
ropewalk_status ropewalk_table_grow(ropewalk_table* table, int64_t count);
/* [2, pairs]: cos, then sin, times the amplitude (YaRN's attention factor), in memory of the
 * table's device; valid until the table grows. */
ropewalk_status ropewalk_table_row(const ropewalk_table* table, int64_t position,
                                   const float** out);
void ropewalk_table_destroy(ropewalk_table* table);
ropewalk_status ropewalk_fill_cos_sin(const ropewalk_frequencies* frequencies,
                                      const int64_t* positions, int64_t count, int32_t precision,
                                      float* out /* [count, 2, pairs] */);

/* base/tensor_view.h: strides in elements. */
typedef struct ropewalk_tensor {
  size_t size;
  void* data;
  int32_t dtype;
  int32_t device;
  int32_t rank;
  int64_t shape[5];
  int64_t strides[5];
} ropewalk_tensor;
/* Row-major, in memory of the CPU. */
static inline void ropewalk_tensor_init(ropewalk_tensor* tensor, void* data, int32_t dtype,
                                        int32_t rank, const int64_t* shape) {
  ropewalk_tensor t = {sizeof(ropewalk_tensor), data, dtype, ROPEWALK_CPU, rank, {0}, {0}};
  int64_t stride = 1;
  int32_t i;
  for (i = rank < 5 ? rank - 1 : 4; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.strides[i] = stride;
    stride *= shape[i];
  }
  *tensor = t;
}

/* rotary/rotate.h, class Positions */
enum {
  ROPEWALK_START = 0,      /* start */
  ROPEWALK_EACH_INT32 = 1, /* data: [axes, count / axes] */
  ROPEWALK_EACH_INT64 = 2,
  ROPEWALK_STARTS = 3, /* data: int64 [batch] */
  ROPEWALK_PACKED = 4, /* data: int64 [sequences + 1] */
  ROPEWALK_LEFT_PADDED = 5
};
typedef struct ropewalk_positions {
  size_t size;
  int32_t kind;
  int32_t axes; /* 0: 1 */
  int64_t start;
  const void* data;
  int64_t count; /* elements of data */
} ropewalk_positions;

/* rotary/rotate.h */
enum { ROPEWALK_FORWARD = 0, ROPEWALK_ADJOINT = 1, ROPEWALK_INVERSE = 2 };
enum { ROPEWALK_COPY_VALUES = 0, ROPEWALK_ROTATE_VALUES = 1 };
typedef struct ropewalk_rotate_args {
  size_t size;
  const ropewalk_table* table;             /* either this, */
  const ropewalk_frequencies* frequencies; /* or this: angles are computed in the call */
  int32_t precision;                       /* with `frequencies` */
  int32_t layout;                          /* required */
  int32_t direction;
  int32_t values;
  const ropewalk_positions* positions; /* required */
  const ropewalk_tensor* q;            /* required; with 0 heads: only k and v */
  const ropewalk_tensor* k;            /* optional from here on */
  const ropewalk_tensor* v;
  const ropewalk_tensor* q_out;
  const ropewalk_tensor* k_out;
  const ropewalk_tensor* v_out;
  int64_t first_dim;
  int64_t rotated_heads;
  const float* q_norm_weight; /* [head_dim] */
  const float* k_norm_weight;
  double q_norm_eps;
  double k_norm_eps;
  const int64_t* slots; /* [num_slots] = [batch * tokens] */
  int64_t num_slots;
  float k_scale; /* of k_out and v_out of ROPEWALK_F8_E4M3; 0: 1 */
  float v_scale;
  void* stream; /* for tensors on a GPU; then all pointers are to GPU memory */
} ropewalk_rotate_args;
ropewalk_status ropewalk_rotate(const ropewalk_rotate_args* args);

/* out: [batch * tokens]; table: [batch, blocks_per_sequence]; first: [batch] */
ropewalk_status ropewalk_block_table_slots(const int32_t* table, int64_t blocks_per_sequence,
                                           int64_t block_slots, const int64_t* first, int64_t batch,
                                           int64_t tokens, int64_t* out);
ropewalk_status ropewalk_ring_slots(int64_t capacity, const int64_t* first, int64_t batch,
                                    int64_t tokens, int64_t* out);

/* rotary/rerotate.h */
typedef struct ropewalk_q8_keys {
  size_t size;
  void* data;
  int32_t device;
  int64_t batch, tokens, heads, head_dim;
  int64_t strides_bytes[3]; /* batch, token, head; all 0: contiguous */
} ropewalk_q8_keys;
typedef struct ropewalk_rerotate_args {
  size_t size;
  const ropewalk_frequencies* frequencies; /* required */
  const ropewalk_frequencies* from;        /* of another method before the call; NULL: the same */
  int32_t layout;                          /* required */
  int32_t amplitude_ratio;                 /* 1: multiply keys by new over old amplitude */
  int64_t delta;                           /* for all keys, unless one of the lists is given: */
  const int64_t* sequence_deltas;          /* [num], num = axes * batch */
  const int64_t* token_deltas;             /* [num], num = axes * batch * tokens */
  const int64_t* old_positions;            /* [num], num as above; old and new together */
  const int64_t* new_positions;
  int64_t num;
  const ropewalk_tensor* keys;     /* either these, */
  const ropewalk_q8_keys* q8_keys; /* or these */
  int64_t first_dim;
  void* stream; /* for keys on a GPU; then the lists are in its memory too */
} ropewalk_rerotate_args;
ropewalk_status ropewalk_rerotate(const ropewalk_rerotate_args* args);

/* rotary/gradient.h */
typedef struct ropewalk_gradient_args {
  size_t size;
  const ropewalk_frequencies* frequencies; /* required */
  const ropewalk_positions* positions;     /* required */
  const ropewalk_tensor* value;            /* required */
  const ropewalk_tensor* gradient;         /* required: of value */
  int32_t layout;                          /* required */
  int64_t first_dim;
} ropewalk_gradient_args;
/* inv_freq: [pairs]; amplitude: one value, or NULL. Both are overwritten. */
ropewalk_status ropewalk_frequency_gradient(const ropewalk_gradient_args* args, double* inv_freq,
                                            double* amplitude);
/* The same for tensors on a GPU, queued on `stream`. In GPU memory: workspace, of as many bytes as
 * the first function returns, and out: [pairs], then the gradient of the amplitude and, with
 * base_derivative ([pairs], CPU memory; or NULL), that of the base. */
ropewalk_status ropewalk_frequency_gradient_workspace(const ropewalk_gradient_args* args,
                                                      int64_t* bytes);
ropewalk_status ropewalk_frequency_gradient_cuda(const ropewalk_gradient_args* args,
                                                 void* workspace, double* out,
                                                 const double* base_derivative, void* stream);
/* out: [pairs], d inv_freq / d base. */
ropewalk_status ropewalk_base_derivative(const ropewalk_spec* spec, int64_t length, double* out);

/* rotary/positions.h */
enum {
  ROPEWALK_RULE_FLAT = 0,
  ROPEWALK_RULE_QWEN2_VL = 1,
  ROPEWALK_RULE_QWEN2_5_VL = 2,
  ROPEWALK_RULE_QWEN3_VL = 3,
  ROPEWALK_RULE_ERNIE = 4,
  ROPEWALK_RULE_XD_ROPE = 5,
  ROPEWALK_RULE_ROPE_TIE = 6,
  ROPEWALK_RULE_ROPE_TV = 7
};
typedef struct ropewalk_position_rule {
  size_t size;
  int32_t rule;
  int64_t spatial_merge;    /* 0: 2 */
  int64_t temporal_merge;   /* 0: 2 */
  double tokens_per_second; /* 0: 2 */
  int64_t start;
} ropewalk_position_rule;
typedef struct ropewalk_position_builder ropewalk_position_builder;
typedef struct ropewalk_token_positions {
  size_t size;
  int64_t axes, tokens;
  int64_t denominator;
  int64_t next;
} ropewalk_token_positions;
ropewalk_status ropewalk_position_builder_create(const ropewalk_position_rule* rule,
                                                 ropewalk_position_builder** out);
ropewalk_status ropewalk_position_builder_text(ropewalk_position_builder* builder, int64_t tokens);
ropewalk_status ropewalk_position_builder_image(ropewalk_position_builder* builder, int64_t height,
                                                int64_t width);
ropewalk_status ropewalk_position_builder_video(ropewalk_position_builder* builder, int64_t frames,
                                                int64_t height, int64_t width,
                                                double seconds_per_grid);
ropewalk_status ropewalk_position_builder_timestamped_video(ropewalk_position_builder* builder,
                                                            const int64_t* timestamp_tokens,
                                                            int64_t frames, int64_t height,
                                                            int64_t width);
/* values: NULL, or an array of `capacity` elements for [axes, tokens]; call it with NULL first to
 * get the size. */
ropewalk_status ropewalk_position_builder_get(const ropewalk_position_builder* builder,
                                              ropewalk_token_positions* out, int64_t* values,
                                              int64_t capacity);
void ropewalk_position_builder_destroy(ropewalk_position_builder* builder);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ROPEWALK_ROPEWALK_H_ */
