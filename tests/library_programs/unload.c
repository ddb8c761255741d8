/* Loads a library, lets workers run its loops, and unloads it, again and again: no worker is left. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { ROWS = 2000, WIDTH = 64, TURNS = 20 };

static float x[ROWS * WIDTH], y[ROWS * WIDTH];

static int count_threads(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static int turn(const char *path, int *most) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  int (*open)(model_context **), (*threads)(model_context *, int64_t);
  int (*run)(model_context *, const tilewright_array *, tilewright_array *);
  void (*close)(model_context *);
  tilewright_array in = {x, sizeof x, 2, {ROWS, WIDTH}}, out = {0};
  model_context *context;
  int now;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  *(void **)&open = dlsym(library, "model_open");
  *(void **)&threads = dlsym(library, "model_set_threads");
  *(void **)&run = dlsym(library, "model_run");
  *(void **)&close = dlsym(library, "model_close");
  out.data = y, out.bytes = sizeof y;
  if (open(&context) || threads(context, 2) || run(context, &in, &out) || run(context, &in, &out)) return 2;
  now = count_threads();
  *most = now > *most ? now : *most;
  close(context);
  if (dlclose(library) || dlopen(path, RTLD_NOW | RTLD_NOLOAD)) return 3;
  return count_threads() != 1;
}

int main(int count, char **arguments) {
  int most = 0;
  (void)count;
  for (int n = 0; n < TURNS; n++) {
    int wrong = turn(arguments[1], &most);
    if (wrong) return printf("turn %d: %d\n", n, wrong), 1;
  }
  printf("threads at most %d\n", most);
  return 0;
}
