/* Calls of several threads at once, of a forked process, and with loops on threads of the caller's: all the same bits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model.h"

enum { ROWS = 2000, WIDTH = 64, CALLERS = 4, CALLS = 20 };

static float x[ROWS * WIDTH], want[ROWS * WIDTH];
static int64_t loops, tasks;

static int run(model_context *context, float *y) {
  tilewright_array in = {x, sizeof x, 2, {ROWS, WIDTH}}, out = {0};
  out.data = y, out.bytes = sizeof want;
  memset(y, 0, sizeof want);
  if (model_run(context, &in, &out)) return fprintf(stderr, "%s\n", model_error(context)), 1;
  return memcmp(y, want, sizeof want) != 0;
}

static int run_alone(int64_t threads) {
  model_context *context;
  int wrong = model_open(&context) || model_set_threads(context, threads);
  float *y = malloc(sizeof want);
  for (int n = 0; n < CALLS; n++) wrong += run(context, y);
  model_close(context);
  free(y);
  return wrong;
}

static void *caller(void *wrong) {
  *(int *)wrong = run_alone(2);
  return NULL;
}

static void backwards(void *state, int64_t count, tilewright_task task, void *work) {
  ++*(int64_t *)state;
  tasks += count;
  while (count--) task(work, count);
}

struct part { pthread_t thread; tilewright_task task; void *work; int64_t n; };

static void *run_part(void *part) {
  struct part *own = part;
  own->task(own->work, own->n);
  return NULL;
}

static void thread_each(void *state, int64_t count, tilewright_task task, void *work) {
  struct part *parts = malloc((size_t)count * sizeof *parts);
  (void)state;
  for (int64_t n = 0; n < count; n++) {
    parts[n].task = task, parts[n].work = work, parts[n].n = n;
    pthread_create(&parts[n].thread, NULL, run_part, parts + n);
  }
  for (int64_t n = 0; n < count; n++) pthread_join(parts[n].thread, NULL);
  free(parts);
}

int main(void) {
  model_context *context;
  pthread_t threads[CALLERS];
  int wrong[CALLERS], status = 0;
  float *y = malloc(sizeof want);
  tilewright_array in = {x, sizeof x, 2, {ROWS, WIDTH}}, out = {0};
  for (int n = 0; n < ROWS * WIDTH; n++) x[n] = (float)(n % 101) / 101.0f - 0.5f;
  out.data = want, out.bytes = sizeof want;
  if (model_open(&context) || model_run(context, &in, &out)) return 1;
  printf("one %d two %d\n", run_alone(1), run_alone(2));
  for (int n = 0; n < CALLERS; n++) pthread_create(threads + n, NULL, caller, wrong + n);
  for (int n = 0; n < CALLERS; n++) pthread_join(threads[n], NULL);
  printf("callers %d %d %d %d\n", wrong[0], wrong[1], wrong[2], wrong[3]);
  fflush(stdout);
  if (fork() == 0) exit(run_alone(2) || run(context, y));
  wait(&status);
  printf("child %d parent %d\n", status, run_alone(2));
  model_set_parallel(context, 2, backwards, &loops);
  printf("backwards %d", run(context, y));
  printf(" several %d\n", tasks > loops && loops > 0);
  model_set_parallel(context, 2, thread_each, NULL);
  printf("threads of its own %d\n", run(context, y));
  model_close(context);
  free(y);
  return 0;
}
