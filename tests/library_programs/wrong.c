/* Wrong calls: each prints its code and the error's text. The library takes x: f32[n, 4] and i: i64[k]. */
#include <stdio.h>
#include <string.h>

#include "model.h"

static model_context *context;
static float x[12], y[8];
static int64_t picked[2] = {0, 2};
static tilewright_array inputs[2], outputs[1];

static void reset(void) {
  tilewright_array first = {x, sizeof x, 2, {3, 4}}, second = {picked, sizeof picked, 1, {2}}, out = {0};
  out.data = y, out.bytes = sizeof y;
  inputs[0] = first, inputs[1] = second, outputs[0] = out;
}

static void say(const char *what, int code) { printf("%s: %d %s\n", what, code, code ? model_error(context) : ""); }

static void call(const char *what) {
  say(what, model_run(context, inputs, outputs));
  reset();
}

static void questions(void) {
  tilewright_port port;
  printf("names %d %d %d %d\n", (int)model_find_input("i"), (int)model_find_input("none"), (int)model_find_input(NULL),
         (int)model_find_output("y"));
  printf("ports %d %d %d %d\n", model_input(2, &port), model_input(-1, &port), model_output(0, NULL), model_input(1, &port));
  printf("port %s %s%s %d %d %d\n", port.name, port.type, port.shape, (int)port.element_bytes, (int)port.rank, (int)port.dims[0]);
  printf("results %d %d %d\n", model_result(NULL, 0) != NULL, model_result(context, 7) != NULL, model_result(context, 0) == y);
}

static void arenas(void) {
  static double memory[1024];
  char *aligned = (char *)(((uintptr_t)memory + 63) / 64 * 64);
  int64_t bytes = -1;
  say("nowhere", model_arena_bytes(context, inputs, NULL));
  inputs[0].dims[1] = 5;
  say("bytes", model_arena_bytes(context, inputs, &bytes));
  reset();
  say("bytes", model_arena_bytes(context, inputs, &bytes));
  printf("%d bytes\n", (int)bytes);
  say("uneven arena", model_set_arena(context, aligned + 4, 4096));
  say("negative arena", model_set_arena(context, aligned, -1));
  say("small arena", model_set_arena(context, aligned, 0));
  call("run");
  say("one less", model_set_arena(context, aligned, bytes - 1));
  call("run");
  say("arena", model_set_arena(context, aligned, bytes));
  call("run");
  say("no arena", model_set_arena(context, NULL, 0));
  call("run");
  say("no limit", model_set_limit(context, -5));
}

int main(void) {
  printf("open null: %d\n", model_open(NULL));
  printf("open: %d\n", model_open(&context));
  reset();
  call("well");
  questions();
  say("no context", model_run(NULL, inputs, outputs));
  printf("null: %s\n", model_error(NULL));
  say("no inputs", model_run(context, NULL, outputs));
  say("no outputs", model_run(context, inputs, NULL));
  inputs[0].rank = 3, call("rank");
  inputs[0].rank = -1, call("negative rank");
  inputs[0].dims[1] = 5, call("size");
  inputs[0].dims[0] = -3, call("negative size");
  inputs[0].dims[0] = INT64_MAX, call("huge size");
  inputs[0].data = NULL, call("null data");
  inputs[0].data = (char *)x + 2, call("uneven data");
  inputs[1].bytes = 15, call("few bytes");
  outputs[0].data = NULL, call("null output");
  outputs[0].bytes = 31, call("small output");
  outputs[0].data = x, call("overlap");
  outputs[0].data = picked, outputs[0].bytes = 32, call("overlap of the second");
  picked[1] = 3, call("fault"), picked[1] = 2;
  call("well again");
  inputs[0].dims[0] = 0, inputs[0].data = NULL, inputs[0].bytes = 0, inputs[1].dims[0] = 0, inputs[1].data = NULL;
  inputs[1].bytes = 0, outputs[0].data = NULL, outputs[0].bytes = 0, call("empty");
  say("threads", model_set_threads(context, 0));
  say("threads", model_set_threads(context, 257));
  say("function", model_set_parallel(context, 2, NULL, NULL));
  arenas();
  model_close(context);
  model_close(NULL);
  return 0;
}
