// Whether the program runs with the allocator of the address sanitizer, which ends it where malloc would fail and
// keeps what is freed. Asked while it runs: programs of tests are the same with and without (RopewalkTargets.cmake).
#pragma once

extern "C" __attribute__((weak)) void __asan_init();

namespace ropewalk {

inline bool UnderAddressSanitizer() { return __asan_init != nullptr; }

}  // namespace ropewalk
