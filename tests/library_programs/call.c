/* Calls a model once. Standard input has its inputs one after another: rank, dimensions, bytes, content. Standard output
   gets rank, dimensions, bytes and content of each result. The argument is a number of threads. */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { MOST = 4096 };

static int64_t number(void) {
  int64_t n = 0;
  if (fread(&n, sizeof n, 1, stdin) != 1) exit(2);
  return n;
}

int main(int count, char **arguments) {
  static tilewright_array in[MOST], out[MOST];
  model_context *context;
  int64_t inputs = model_inputs(), outputs = model_outputs(), threads = count > 1 ? strtol(arguments[1], NULL, 10) : 1;
  if (inputs > MOST || outputs > MOST) return 3;
  if (model_open(&context) || model_set_threads(context, threads)) return fprintf(stderr, "%s\n", model_error(context)), 1;
  for (int64_t n = 0; n < inputs; n++) {
    in[n].rank = number();
    for (int64_t axis = 0; axis < in[n].rank && axis < 8; axis++) in[n].dims[axis] = number();
    in[n].bytes = number();
    in[n].data = malloc((size_t)in[n].bytes + 1);
    if (fread(in[n].data, 1, (size_t)in[n].bytes, stdin) != (size_t)in[n].bytes) return 4;
  }
  if (model_sizes(context, in, out)) return fprintf(stderr, "%s\n", model_error(context)), 1;
  for (int64_t n = 0; n < outputs; n++) {
    int known = 1;
    for (int64_t axis = 0; axis < out[n].rank; axis++) known &= out[n].dims[axis] >= 0;
    if (known) out[n].data = malloc((size_t)out[n].bytes + 1);
  }
  if (model_run(context, in, out)) return fprintf(stderr, "%s\n", model_error(context)), 1;
  for (int64_t n = 0; n < outputs; n++) {
    tilewright_port port;
    if (model_output(n, &port)) return 5;
    int64_t bytes = port.element_bytes;
    for (int64_t axis = 0; axis < out[n].rank; axis++) bytes *= out[n].dims[axis];
    fwrite(&out[n].rank, sizeof(int64_t), 1, stdout);
    fwrite(out[n].dims, sizeof(int64_t), (size_t)out[n].rank, stdout);
    fwrite(&bytes, sizeof bytes, 1, stdout);
    fwrite(out[n].data ? out[n].data : model_result(context, n), 1, (size_t)bytes, stdout);
    free(out[n].data);
  }
  for (int64_t n = 0; n < inputs; n++) free(in[n].data);
  model_close(context);
  return 0;
}
