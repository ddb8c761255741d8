/* A library whose code this machine does not run: every call that would run it says so. */
#include <stdio.h>

#include "digits.h"

int main(void) {
  digits_context *context;
  float x[64] = {0}, y[10];
  int64_t bytes;
  tilewright_array in = {x, sizeof x, 4, {1, 1, 8, 8}}, out = {0};
  out.data = y, out.bytes = sizeof y;
  printf("open %d\n", digits_open(&context));
  printf("sizes %d run %d\n", digits_sizes(context, &in, &out), digits_run(context, &in, &out));
  printf("arena %d %d limit %d threads %d\n", digits_arena_bytes(context, &in, &bytes), digits_set_arena(context, NULL, 0),
         digits_set_limit(context, 1), digits_set_threads(context, 2));
  printf("inputs %d result %d\n", (int)digits_inputs(), digits_result(context, 0) != NULL);
  printf("%s\n", digits_error(context));
  digits_close(context);
  return 0;
}
