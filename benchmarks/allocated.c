/* Counts the bytes that a process has allocated, and the most since it was last asked: loaded before the C library
   (LD_PRELOAD), whose functions it calls.

   allocated_now()       bytes in use
   allocated_most()      the most that were since the last call of it; from then on, those in use */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static _Atomic long now, most;

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void (*next_free)(void *);

/* What dlsym itself asks for, before the functions are known. */
static _Alignas(16) char early[1 << 14];
static _Atomic size_t early_used;

static int is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }

static void find(void) {
  next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
  next_memalign = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
  next_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
}

__attribute__((constructor)) static void begin(void) { find(); }

static void *taken(void *p) {
  if (p) {
    long size = (long)malloc_usable_size(p), sum = atomic_fetch_add(&now, size) + size, before = most;
    while (sum > before && !atomic_compare_exchange_weak(&most, &before, sum)) {
    }
  }
  return p;
}

void *malloc(size_t size) {
  if (!next_malloc) find();
  return taken(next_malloc(size));
}

void *calloc(size_t count, size_t size) {
  if (next_calloc) return taken(next_calloc(count, size));
  size_t whole = (count * size + 15) & ~(size_t)15, place = atomic_fetch_add(&early_used, whole);
  return place + whole <= sizeof early ? early + place : NULL;
}

void free(void *p) {
  if (!p || is_early(p)) return;
  atomic_fetch_sub(&now, (long)malloc_usable_size(p));
  next_free(p);
}

void *realloc(void *p, size_t size) {
  if (!next_realloc) find();
  if (is_early(p)) {
    void *moved = malloc(size);
    size_t rest = (size_t)(early + sizeof early - (char *)p);
    return moved ? memcpy(moved, p, size < rest ? size : rest) : NULL;
  }
  long before = p ? (long)malloc_usable_size(p) : 0;
  void *moved = next_realloc(p, size);
  if (moved || !size) atomic_fetch_sub(&now, before);
  return taken(moved);
}

void *memalign(size_t alignment, size_t size) {
  if (!next_memalign) find();
  return taken(next_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **place, size_t alignment, size_t size) {
  if (!next_posix_memalign) find();
  int error = next_posix_memalign(place, alignment, size);
  if (!error) taken(*place);
  return error;
}

long allocated_now(void) { return now; }

long allocated_most(void) { return atomic_exchange(&most, now); }
