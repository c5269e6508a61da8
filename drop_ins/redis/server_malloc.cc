// SPDX-License-Identifier: BSD-3-Clause
// One heap for the module, its libraries and the C library. Valkey opens modules with
// RTLD_DEEPBIND, so they would find the C library's malloc() while the C library itself uses the
// server's (jemalloc): what one allocates the other would free. These come first for the module and
// its libraries, and ask the program for its own.

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

namespace {

template <typename Function>
Function* of_program(const char* name) noexcept {
  static void* const program = dlopen(nullptr, RTLD_NOW);
  void* found = dlsym(program, name);
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof function);
  return function;
}

}  // namespace

extern "C" {

#define FORWARD(result, name, parameters, arguments)                       \
  __attribute__((visibility("default"))) result name parameters noexcept { \
    static auto* const next = of_program<result parameters>(#name);        \
    return next arguments;                                                 \
  }
FORWARD(void*, malloc, (std::size_t size), (size))
FORWARD(void*, calloc, (std::size_t count, std::size_t size), (count, size))
FORWARD(void*, realloc, (void* old, std::size_t size), (old, size))
FORWARD(void, free, (void* memory), (memory))
FORWARD(void*, memalign, (std::size_t alignment, std::size_t size), (alignment, size))
FORWARD(void*, aligned_alloc, (std::size_t alignment, std::size_t size), (alignment, size))
FORWARD(int, posix_memalign, (void** to, std::size_t alignment, std::size_t size),
        (to, alignment, size))
FORWARD(std::size_t, malloc_usable_size, (void* memory), (memory))
#undef FORWARD
}
