// SPDX-License-Identifier: BSD-3-Clause
// Makes the module, its libraries and the C library use the same heap. Valkey opens modules with
// RTLD_DEEPBIND, so they would use the C library's malloc() while the C library itself uses the
// server's (jemalloc): memory allocated by one would be freed by the other. The functions below
// take precedence for the module and its libraries, and forward to those of the program.

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
