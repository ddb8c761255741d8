/* Two libraries linked, and one of them loaded and unloaded by hand. */
#include <dlfcn.h>
#include <stdio.h>

#include "first.h"
#include "second.h"

static int load_again(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  int (*open)(first_context **), (*threads)(first_context *, int64_t);
  int (*run)(first_context *, const tilewright_array *, tilewright_array *);
  void (*close)(first_context *);
  float x[2] = {1, 2}, y[2] = {0};
  tilewright_array in = {x, sizeof x, 1, {2}}, out = {0};
  first_context *context;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  *(void **)&open = dlsym(library, "first_open");
  *(void **)&threads = dlsym(library, "first_set_threads");
  *(void **)&run = dlsym(library, "first_run");
  *(void **)&close = dlsym(library, "first_close");
  out.data = y, out.bytes = sizeof y;
  if (open(&context) || threads(context, 2) || run(context, &in, &out)) return 2;
  close(context);
  return dlclose(library) || y[1] != 4;
}

int main(int count, char **arguments) {
  first_context *first;
  second_context *second;
  float x[3] = {1, 2, 3}, y[3] = {0}, z[3] = {0};
  tilewright_array in = {x, sizeof x, 1, {3}}, out = {0};
  (void)count;
  out.data = y, out.bytes = sizeof y;
  if (first_open(&first) || second_open(&second) || first_run(first, &in, &out)) return 1;
  out.data = z;
  if (second_run(second, &in, &out)) return 1;
  printf("%g %g %g, %g %g %g\n", y[0], y[1], y[2], z[0], z[1], z[2]);
  first_close(first);
  second_close(second);
  for (int n = 0; n < 3; n++) printf("again %d\n", load_again(arguments[1]));
  return 0;
}
