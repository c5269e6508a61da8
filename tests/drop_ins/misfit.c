// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into redis-server and valkey-server: gives the tables that a module looks up another
// layout, selected by MISFIT: "a function more", "a function less", "constant", "connection",
// "listener".

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { kWords = 40 };
static void** (*real_tcp)(void);
static char* (*real_listener)(long);
static void* table[kWords + 1];
static void* const constant[kWords] = {(void*)dlsym};

static int asked_for(const char* what) {
  const char* misfit = getenv("MISFIT");
  return misfit != NULL && strcmp(misfit, what) == 0;
}

static void** tcp(void) {
  void** real = real_tcp();
  if (asked_for("constant")) return (void**)constant;
  if (table[0] != NULL) return table;
  memcpy(table, real, kWords * sizeof *table);
  if (asked_for("a function more")) {
    memcpy(table + 18, real + 17, (kWords - 17) * sizeof *table);
  } else if (asked_for("a function less")) {
    memcpy(table + 17, real + 18, (kWords - 18) * sizeof *table);
  }
  return table;  // unchanged for "connection": connections do not point to it
}

// Larger distance between the listeners: those of the first and of the second type.
static char* listener(long type) {
  static char* first;
  char* real = real_listener(type);
  if (first == NULL) first = real;
  return real == first ? real : real + 8;
}

void* dlsym(void* handle, const char* name) {
  static void* (*real)(void*, const char*);
  if (real == NULL) {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    memcpy(&real, &found, sizeof real);
  }
  void* found = real(handle, name);
  if (getenv("MISFIT") == NULL) return found;
  if (strcmp(name, "connectionTypeTcp") == 0 && !asked_for("listener")) {
    memcpy(&real_tcp, &found, sizeof real_tcp);
    return (void*)tcp;
  }
  if (strcmp(name, "listenerByType") == 0 && asked_for("listener")) {
    memcpy(&real_listener, &found, sizeof real_listener);
    return (void*)listener;
  }
  return found;
}
