// How many threads the library may use. One number for OpenMP loops and for oneDNN, which shares
// the runtime, so that cores are not fought over.
#pragma once

namespace ropewalk {

// At least 1; throws Error otherwise. Results are bit-identical for equal thread counts. It is a
// limit: work too small to gain from threads runs on one.
void SetNumThreads(int threads);
int NumThreads();

}  // namespace ropewalk
