// How many threads the library may use, and what several threads may do at once.
//
// Functions that take what they read and write as arguments (Rotate, Rerotate, Attention,
// AttentionBackward, Resolve, every Lower and Backward) may be called from several threads at once,
// as may const members of one object (tables, forms, Linear::Apply, Decoder::Forward and
// Encoder::Forward, Tokenizer), as long as nobody changes what they read and each writes to memory
// of its own: a thread has its own Sequence and KvCache. The other members change their object:
// KvCache::Append and Truncate, LoadRotation::Grow, members of Sequence. One thread at a time then,
// and nobody reads meanwhile.
#pragma once

namespace ropewalk {

// One number for the whole library, whichever thread sets it, for its own loops and for oneDNN:
// each call that is worth it uses so many, so that calls from n threads at once use n times as
// many. It is a limit: work too small to gain from threads runs on one. Results are bit-identical
// for equal numbers. 1 to 4096, or Error, whatever number of cores there is; OpenMP's own settings
// stay as they are.
void SetNumThreads(int threads);
// Until SetNumThreads is called, what OpenMP has in the calling thread (OMP_NUM_THREADS, or what
// omp_set_num_threads said there), at most NumCores().
int NumThreads();

// Cores that the process could use when this was first asked.
int NumCores();

}  // namespace ropewalk
