/* Weights in a file: none yet, files that are not right, the right one, and a context that shares it. */
#include <stdio.h>

#include "digits.h"

static digits_context *context, *other;
static float x[64], y[10], z[10];

static void say(const char *what, int code, digits_context *of) {
  printf("%s: %d %s\n", what, code, code ? digits_error(of) : "");
}

static int run(digits_context *of, float *to) {
  tilewright_array in = {x, sizeof x, 4, {1, 1, 8, 8}}, out = {0};
  out.data = to, out.bytes = sizeof y;
  return digits_run(of, &in, &out);
}

int main(int count, char **files) {
  int same = 1;
  printf("open %d %d\n", digits_open(&context), digits_open(&other));
  say("no weights", run(context, y), context);
  say("null", digits_load_weights(context, NULL), context);
  say("no context", digits_load_weights(NULL, files[1]), NULL);
  say("nothing to share", digits_share_weights(context, other), context);
  say("itself", digits_share_weights(context, context), context);
  for (int n = 2; n < count; n++) say("wrong file", digits_load_weights(context, files[n]), context);
  say("still none", run(context, y), context);
  say("right file", digits_load_weights(context, files[1]), context);
  say("again", digits_load_weights(context, files[1]), context);
  say("run", run(context, y), context);
  say("share", digits_share_weights(other, context), other);
  say("run", run(other, z), other);
  for (int n = 0; n < 10; n++) same = same && y[n] == z[n] && y[n] > 0;
  printf("same %d\n", same);
  if (count > 2) say("wrong file afterwards", digits_load_weights(context, files[2]), context);
  say("run", run(context, y), context);
  digits_close(other);
  digits_close(context);
  return 0;
}
