/* Loads a library in a process of its own and calls it: a line of JSON, in seconds and bytes.

   library_start LIBRARY CALLS < INPUTS          load, first, calls; what is resident at its peak, arena, page faults
   library_start LIBRARY                         read: the file, a buffer at a time */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

enum { MOST = 64, BUFFER = 1 << 18 };

static tilewright_array inputs[MOST], outputs[MOST];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int refuse(const char *why) { return fprintf(stderr, "%s\n", why), 1; }

static long long figure(const char *name) {
  char line[256];
  long long found = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, name, strlen(name))) found = strtoll(line + strlen(name) + 1, NULL, 10) * 1024;
  if (status) fclose(status);
  return found;
}

static long count_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

static int read_file(const char *path) {
  static char buffer[BUFFER];
  int file = open(path, O_RDONLY);
  double start = now();
  if (file < 0) return refuse("cannot open the library");
  while (read(file, buffer, sizeof buffer) > 0) continue;
  printf("{\"read\": %.9f}\n", now() - start);
  return close(file);
}

static int read_inputs(int64_t count) {
  for (int64_t n = 0; n < count; n++) {
    tilewright_array *in = inputs + n;
    if (fread(&in->bytes, 8, 2 + sizeof in->dims / 8, stdin) != 2 + sizeof in->dims / 8) return 1;
    if (!(in->data = aligned_alloc(64, (size_t)(in->bytes / 64 + 1) * 64))) return 1;
    if (fread(in->data, 1, (size_t)in->bytes, stdin) != (size_t)in->bytes) return 1;
  }
  return 0;
}

int main(int count, char **arguments) {
  int (*open_context)(model_context **), (*sizes)(model_context *, const tilewright_array *, tilewright_array *);
  int (*run)(model_context *, const tilewright_array *, tilewright_array *);
  int (*arena_bytes)(model_context *, const tilewright_array *, int64_t *);
  int64_t (*input_count)(void), (*output_count)(void), arena = 0;
  model_context *context;
  double start, loaded, began, first;
  long faults;
  void *library;
  if (count < 3) return read_file(arguments[1]);
  start = now();
  if (!(library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL))) return refuse(dlerror());
  *(void **)&open_context = dlsym(library, "model_open");
  if (open_context(&context)) return refuse("cannot open a context");
  loaded = now() - start;
  *(void **)&sizes = dlsym(library, "model_sizes");
  *(void **)&run = dlsym(library, "model_run");
  *(void **)&arena_bytes = dlsym(library, "model_arena_bytes");
  *(void **)&input_count = dlsym(library, "model_inputs");
  *(void **)&output_count = dlsym(library, "model_outputs");
  if (input_count() > MOST || output_count() > MOST || read_inputs(input_count())) return refuse("cannot read inputs");
  if (sizes(context, inputs, outputs) || arena_bytes(context, inputs, &arena)) return refuse("inputs do not fit");
  for (int64_t n = 0; n < output_count(); n++) outputs[n].data = malloc((size_t)outputs[n].bytes + 1);
  faults = count_faults();
  began = now();
  if (run(context, inputs, outputs)) return refuse("the first call fails");
  first = now() - began;
  printf("{\"load\": %.9f, \"first\": %.9f, \"faults\": %ld, \"calls\": [", loaded, first, count_faults() - faults);
  for (long n = strtol(arguments[2], NULL, 10); n > 0; n--) {
    began = now();
    if (run(context, inputs, outputs)) return refuse("a call fails");
    printf("%.9f%s", now() - began, n > 1 ? ", " : "");
  }
  printf("], \"peak\": %lld, \"arena\": %lld}\n", figure("VmHWM"), (long long)arena);
  return 0;
}
