// The number of threads that the library uses, and its thread safety.
//
// Free functions (Rotate, Rerotate, Attention, AttentionBackward, Resolve, every Lower and
// Backward) and const members of one object (tables, forms, Linear::Apply, Decoder::Forward and
// Encoder::Forward, Tokenizer) may be called from several threads at once, as long as no thread
// changes what another one reads and each writes to its own memory: every thread needs its own
// Sequence and KvCache. Members that are not const (KvCache::Append and Truncate,
// LoadRotation::Grow, members of Sequence) need exclusive access to their object.
#pragma once

namespace ropewalk {

// Sets the largest number of threads per call, for the whole library including oneDNN, whichever
// thread sets it. Calls from n threads at once use up to n times as many; work too small to gain
// from threads runs on one. Results are bit-identical for equal numbers. Throws Error unless
// threads is 1 to 4096; it may exceed the number of cores. OpenMP's own settings are not changed.
void SetNumThreads(int threads);
// The number set by SetNumThreads; before it is called, OpenMP's number in the calling thread
// (OMP_NUM_THREADS or omp_set_num_threads), at most NumCores().
int NumThreads();

// The cores available to the process at the first call.
int NumCores();

}  // namespace ropewalk
