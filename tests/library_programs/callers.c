/* Several threads call a model at once, with a context each, and make the same calls.

   callers THREADS CALLERS < CALLS > RESULTS

   Standard input has how many calls there are, and the inputs of each: rank, dimensions, bytes, content. Standard output
   gets what the first caller was given for each result, in the same form; the program fails where another one was given
   something else. With LOADED, the library is loaded when the program runs, by the path in that macro. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#ifdef LOADED
#include <dlfcn.h>

static struct {
  int64_t (*inputs)(void), (*outputs)(void);
  int (*open)(model_context **), (*set_threads)(model_context *, int64_t);
  int (*sizes)(model_context *, const tilewright_array *, tilewright_array *);
  int (*run)(model_context *, const tilewright_array *, tilewright_array *);
  void (*close)(model_context *);
  const char *(*error)(const model_context *);
} loaded;
#define model_inputs loaded.inputs
#define model_outputs loaded.outputs
#define model_open loaded.open
#define model_set_threads loaded.set_threads
#define model_sizes loaded.sizes
#define model_run loaded.run
#define model_close loaded.close
#define model_error loaded.error

static int load(void) {
  static const char *const names[] = {"inputs", "outputs", "open", "set_threads", "sizes", "run", "close", "error"};
  void **places[] = {(void **)&loaded.inputs, (void **)&loaded.outputs, (void **)&loaded.open, (void **)&loaded.set_threads,
                     (void **)&loaded.sizes, (void **)&loaded.run, (void **)&loaded.close, (void **)&loaded.error};
  void *library = dlopen(LOADED, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  for (int n = 0; n < 8; n++) {
    char name[32];
    snprintf(name, sizeof name, "model_%s", names[n]);
    if (!(*places[n] = dlsym(library, name))) return fprintf(stderr, "%s\n", dlerror()), 1;
  }
  return 0;
}
#else
static int load(void) { return 0; }
#endif

struct caller { pthread_t thread; int failed; tilewright_array *out; };

static tilewright_array *in;
static int64_t calls, threads;

static int64_t number(void) {
  int64_t n = 0;
  if (fread(&n, sizeof n, 1, stdin) != 1) exit(2);
  return n;
}

static void read_array(tilewright_array *to) {
  to->rank = number();
  for (int64_t axis = 0; axis < to->rank && axis < 8; axis++) to->dims[axis] = number();
  to->bytes = number();
  to->data = malloc((size_t)to->bytes + 1);
  if (fread(to->data, 1, (size_t)to->bytes, stdin) != (size_t)to->bytes) exit(2);
}

static int refuse(model_context *context) {
  fprintf(stderr, "%s\n", model_error(context));
  model_close(context);
  return 1;
}

static int make_calls(tilewright_array *out) {
  model_context *context;
  int64_t inputs = model_inputs(), outputs = model_outputs();
  if (model_open(&context) || model_set_threads(context, threads)) return refuse(context);
  for (int64_t call = 0; call < calls; call++, out += outputs) {
    if (model_sizes(context, in + call * inputs, out)) return refuse(context);
    for (int64_t n = 0; n < outputs; n++) out[n].data = malloc((size_t)out[n].bytes + 1);
    if (model_run(context, in + call * inputs, out)) return refuse(context);
  }
  model_close(context);
  return 0;
}

static void *start(void *caller) {
  struct caller *own = caller;
  own->failed = make_calls(own->out);
  return NULL;
}

static int differ(const tilewright_array *a, const tilewright_array *b) {
  return a->rank != b->rank || memcmp(a->dims, b->dims, sizeof a->dims) || a->bytes != b->bytes ||
         memcmp(a->data, b->data, (size_t)a->bytes);
}

static void write_array(const tilewright_array *array) {
  fwrite(&array->rank, sizeof(int64_t), 1, stdout);
  fwrite(array->dims, sizeof(int64_t), (size_t)array->rank, stdout);
  fwrite(&array->bytes, sizeof(int64_t), 1, stdout);
  fwrite(array->data, 1, (size_t)array->bytes, stdout);
}

int main(int count, char **arguments) {
  long callers = count > 2 ? strtol(arguments[2], NULL, 10) : 1;
  struct caller *all = calloc((size_t)callers, sizeof *all);
  int64_t results;
  int wrong = 0;
  threads = strtol(arguments[1], NULL, 10), calls = number();
  if (load()) return 3;
  in = calloc((size_t)(calls * model_inputs() + 1), sizeof *in), results = calls * model_outputs();
  for (int64_t n = 0; n < calls * model_inputs(); n++) read_array(in + n);
  for (long n = 0; n < callers; n++) all[n].out = calloc((size_t)results + 1, sizeof *all[n].out);
  for (long n = 1; n < callers; n++) pthread_create(&all[n].thread, NULL, start, all + n);
  start(all);
  for (long n = 1; n < callers; n++) pthread_join(all[n].thread, NULL);
  for (long n = 0; n < callers; n++) wrong |= all[n].failed;
  for (long n = 0; !wrong && n < callers; n++) {
    for (int64_t k = 0; k < results; k++) wrong |= differ(all[n].out + k, all[0].out + k) ? 4 : 0;
  }
  for (int64_t k = 0; !wrong && k < results; k++) write_array(all[0].out + k);
  for (long n = 0; n < callers; n++) {
    for (int64_t k = 0; k < results; k++) free(all[n].out[k].data);
    free(all[n].out);
  }
  for (int64_t n = 0; n < calls * model_inputs(); n++) free(in[n].data);
  free(in);
  free(all);
  return wrong;
}
