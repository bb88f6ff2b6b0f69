/* The programs of a file that generates, by LiteRT: what a step gives goes into the next one in the buffers that it stands in. */
#if !defined(__wasm__)
#include <stdlib.h>

#include "litert.h"

#define MOST_STATES 1024 /* inputs or outputs of a step */

typedef struct part { char name[MOST_NAME]; ranked type; size_t values; } part; /* values: numbers that it holds */

/* The outputs of a run, or a state that was made. */
typedef struct set { struct set *next; void *buffers[1]; } set;

/* A signature. `from`: of each input of a step what fills it, an output's number or one of these. */
enum { TOKEN = -1, COLUMN = -2, FIXED = -3 };
typedef struct program {
  struct program *next;
  size_t number, inputs, outputs, logits;
  part *in, *out;
  int32_t *from;
  void **given; /* buffers of the inputs: of a program that reads all, of a step token and column */
  void **fixed; /* of a step: what the program that read this text gave */
  set *idle;
  char name[MOST_NAME];
} program;

typedef struct steps {
  litert *l;
  const char *logits;
  program *programs, *now, *reader;
  set *read; /* what the reader gave */
  set *states[KB_MOST_BEAMS], *after[KB_MOST_BEAMS];
  float *values;
  size_t values_room;
} steps;

/* ---- signatures ---- */

static int same_type(const part *a, const part *b) {
  return a->type.element == b->type.element && a->type.shape.rank == b->type.shape.rank &&
         memcmp(a->type.shape.dimensions, b->type.shape.dimensions, a->type.shape.rank * sizeof *a->type.shape.dimensions) == 0;
}

static kb_status read_part(litert *l, void *signature, size_t i, int output, const char *name, part *p, kb_message *message) {
  const char *own = NULL;
  void *tensor = NULL;
  size_t axis;
  int status = output ? l->call.GetSignatureOutputName(signature, i, &own) : l->call.GetSignatureInputName(signature, i, &own);
  if (status == 0) status = output ? l->call.GetSignatureOutputTensorByIndex(signature, i, &tensor) : l->call.GetSignatureInputTensorByIndex(signature, i, &tensor);
  if (status == 0) status = l->call.GetRankedTensorType(tensor, &p->type);
  if (status != 0) return kb_litert_refused(message, "read", status);
  if (strlen(own) >= MOST_NAME || p->type.shape.rank > MOST_RANK) return kb_litert_differs(message, name, "input or output", own);
  memcpy(p->name, own, strlen(own) + 1);
  for (axis = 0, p->values = 1; axis < p->type.shape.rank; axis++) {
    size_t size = p->type.shape.dimensions[axis] > 0 ? (size_t)p->type.shape.dimensions[axis] : 0;
    if (size == 0 || p->values > KB_MOST_VALUES / size) return kb_litert_differs(message, name, "input or output", own);
    p->values *= size;
  }
  return KB_OK;
}

static void free_set(steps *s, const program *p, set *each) {
  size_t i;
  for (i = 0; i < p->outputs; i++)
    if (each->buffers[i] != NULL) s->l->call.DestroyTensorBuffer(each->buffers[i]);
  free(each);
}

static void free_program(steps *s, program *p) {
  size_t i;
  set *each;
  while ((each = p->idle) != NULL) p->idle = each->next, free_set(s, p, each);
  for (i = 0; p->given != NULL && i < p->inputs; i++)
    if (p->given[i] != NULL) s->l->call.DestroyTensorBuffer(p->given[i]);
  free(p->in);
  free(p->out);
  free(p->from);
  free(p->given);
  free(p->fixed);
  free(p);
}

static kb_status new_program(steps *s, const char *name, program **made, kb_message *message) {
  void *signature = NULL;
  program *p = calloc(1, sizeof *p);
  size_t i;
  kb_status status = p == NULL ? kb_no_memory(message) : strlen(name) < MOST_NAME ? kb_litert_signature(s->l, name, &p->number, &signature, message) : kb_litert_differs(message, name, "name", name);
  *made = NULL;
  if (status == KB_OK) {
    memcpy(p->name, name, strlen(name) + 1);
    if (s->l->call.GetNumSignatureInputs(signature, &p->inputs) != 0 || s->l->call.GetNumSignatureOutputs(signature, &p->outputs) != 0 || p->inputs < 1 ||
        p->outputs < 1 || p->inputs > MOST_STATES || p->outputs > MOST_STATES)
      p->inputs = p->outputs = 0, status = kb_litert_differs(message, name, "inputs and outputs", "");
  }
  if (status == KB_OK) {
    p->in = calloc(p->inputs, sizeof *p->in), p->out = calloc(p->outputs, sizeof *p->out);
    p->from = calloc(p->inputs, sizeof *p->from), p->given = calloc(p->inputs, sizeof *p->given), p->fixed = calloc(p->inputs, sizeof *p->fixed);
    if (p->in == NULL || p->out == NULL || p->from == NULL || p->given == NULL || p->fixed == NULL) status = kb_no_memory(message);
  }
  for (i = 0; status == KB_OK && i < p->inputs; i++) status = read_part(s->l, signature, i, 0, name, p->in + i, message);
  for (i = 0; status == KB_OK && i < p->outputs; i++) status = read_part(s->l, signature, i, 1, name, p->out + i, message);
  if (status == KB_OK) *made = p;
  else if (p != NULL) free_program(s, p);
  return status;
}

static const part *find(const part *parts, size_t count, const char *name, size_t *place) {
  for (*place = 0; *place < count; (*place)++)
    if (strcmp(parts[*place].name, name) == 0) return parts + *place;
  return NULL;
}

/* A step: a token and its place, a state that it gives again, what was read, and logits [1, V]. */
static kb_status check_step(steps *s, program *p, kb_message *message) {
  size_t i, at, moving = 0;
  const part *logits = find(p->out, p->outputs, s->logits, &p->logits);
  if (logits == NULL || logits->type.element != FLOAT32 || logits->type.shape.rank != 2 || logits->type.shape.dimensions[0] != 1) return kb_litert_differs(message, p->name, "output", s->logits);
  for (i = 0; i < p->inputs; i++) {
    const part *in = p->in + i, *out = find(p->out, p->outputs, in->name, &at);
    int own = strcmp(in->name, "token_ids") == 0 ? TOKEN : strcmp(in->name, "column") == 0 ? COLUMN : 0;
    if (own && (in->type.element != INT32 || in->values != 1)) return kb_litert_differs(message, p->name, "input", in->name);
    p->from[i] = own ? own : out ? (int32_t)at : FIXED;
    if (own || out == NULL) continue;
    moving++;
    if (!same_type(in, out) || in->type.element != FLOAT32 || in->type.shape.rank != 4 || at == p->logits) return kb_litert_differs(message, p->name, "state", in->name);
  }
  return moving + 1 == p->outputs ? KB_OK : kb_litert_differs(message, p->name, "states", "");
}

static kb_status program_of(steps *s, const char *name, int is_step, program **found, kb_message *message) {
  kb_status status;
  for (*found = s->programs; *found != NULL; *found = (*found)->next)
    if (strcmp((*found)->name, name) == 0) return KB_OK;
  status = new_program(s, name, found, message);
  if (status == KB_OK && is_step) status = check_step(s, *found, message);
  if (status == KB_OK) (*found)->next = s->programs, s->programs = *found;
  else if (*found != NULL) free_program(s, *found);
  return status;
}

/* ---- buffers ---- */

static int make_buffer(steps *s, const program *p, size_t i, int output, void **buffer) {
  void *requirements = NULL;
  int status = output ? s->l->call.GetCompiledModelOutputBufferRequirements(s->l->compiled, p->number, i, &requirements)
                      : s->l->call.GetCompiledModelInputBufferRequirements(s->l->compiled, p->number, i, &requirements);
  return status == 0 ? s->l->call.CreateManagedTensorBufferFromRequirements(s->l->environment, &(output ? p->out : p->in)[i].type, requirements, buffer) : status;
}

/* Outputs for a run, of those that nobody needs any more, or new. */
static kb_status take(steps *s, program *p, set **taken, kb_message *message) {
  size_t i;
  int status = 0;
  if (p->idle != NULL) {
    *taken = p->idle, p->idle = p->idle->next;
    return KB_OK;
  }
  *taken = calloc(1, sizeof **taken + p->outputs * sizeof(void *));
  if (*taken == NULL) return kb_no_memory(message);
  for (i = 0; i < p->outputs && status == 0; i++) status = make_buffer(s, p, i, 1, (*taken)->buffers + i);
  if (status == 0) return KB_OK;
  free_set(s, p, *taken);
  *taken = NULL;
  return kb_litert_refused(message, "run", status);
}

static void give(program *p, set **each) {
  if (*each != NULL) (*each)->next = p->idle, p->idle = *each;
  *each = NULL;
}

/* Numbers of one [A, B, P, D] into the first places of another [A, B, T, D]; zeros elsewhere, and everywhere without one. */
static int widen(litert *l, void *from, const part *old, void *to, const part *type) {
  const int32_t *d = type->type.shape.dimensions;
  size_t outer = (size_t)d[0] * (size_t)d[1], row = (size_t)d[2] * (size_t)d[3], had, kept, i;
  size_t size = 0, old_size = 0;
  void *source = NULL, *target = NULL;
  int status = l->call.GetTensorBufferSize(to, &size);
  if (status == 0 && size < type->values * sizeof(float)) status = -1;
  if (status == 0 && from != NULL) status = l->call.GetTensorBufferSize(from, &old_size);
  if (status == 0 && from != NULL && old_size < old->values * sizeof(float)) status = -1;
  if (status == 0 && from != NULL) status = l->call.LockTensorBuffer(from, &source, 0);
  if (status != 0) return status;
  status = l->call.LockTensorBuffer(to, &target, 1);
  if (status == 0) {
    memset(target, 0, type->values * sizeof(float));
    had = from ? (size_t)old->type.shape.dimensions[2] * (size_t)d[3] : 0, kept = had < row ? had : row;
    for (i = 0; i < outer && had > 0; i++) memcpy((float *)target + i * row, (const float *)source + i * had, kept * sizeof(float));
    status = l->call.UnlockTensorBuffer(to);
  }
  if (from != NULL && l->call.UnlockTensorBuffer(from) != 0 && status == 0) status = -1;
  return status;
}

/* A state of `p` that begins as one of `old`, whose outputs `from` are; NULL: zeros. */
static kb_status widened(steps *s, program *p, const program *old, const set *from, set **made, kb_message *message) {
  size_t i, at;
  kb_status status = take(s, p, made, message);
  for (i = 0; status == KB_OK && i < p->outputs; i++) {
    const part *type = p->out + i, *had = from ? find(old->out, old->outputs, type->name, &at) : NULL;
    const int32_t *d = type->type.shape.dimensions, *o = had ? had->type.shape.dimensions : NULL;
    int done;
    if (i == p->logits) continue;
    if (from && (had == NULL || had->type.element != FLOAT32 || had->type.shape.rank != 4 || o[0] != d[0] || o[1] != d[1] || o[3] != d[3])) {
      status = kb_litert_differs(message, p->name, "state", type->name);
      break;
    }
    done = widen(s->l, from ? from->buffers[at] : NULL, had, (*made)->buffers[i], type);
    if (done != 0) status = kb_litert_refused(message, "run", done);
  }
  if (status != KB_OK) give(p, made);
  return status;
}

/* ---- what generate.c asks ---- */

static kb_status programs_read(void *context, const char *signature, const kb_input *inputs, size_t count, kb_message *message) {
  steps *s = context;
  program *p;
  size_t i, k;
  int done = 0;
  kb_status status = program_of(s, signature, 0, &p, message);
  if (status != KB_OK) return status;
  if (p->inputs != count) return kb_litert_differs(message, signature, "inputs", "");
  for (i = 0; i < count && done == 0; i++) {
    const ranked *type = &p->in[i].type;
    for (k = 0; k < count && strcmp(p->in[i].name, inputs[k].name) != 0;) k++;
    if (k == count || type->element != (inputs[k].is_bool ? BOOL : INT32) || p->in[i].values != inputs[k].count) return kb_litert_differs(message, signature, "input", p->in[i].name);
    if (p->given[i] == NULL) done = make_buffer(s, p, i, 0, p->given + i);
    if (done == 0) done = kb_litert_copy(s->l, p->given[i], (void *)(uintptr_t)inputs[k].data, inputs[k].count * (inputs[k].is_bool ? 1 : 4), 1);
  }
  if (done != 0) return kb_litert_refused(message, "run", done);
  if (s->read != NULL) give(s->reader, &s->read);
  s->reader = p;
  status = take(s, p, &s->read, message);
  if (status == KB_OK) done = s->l->call.RunCompiledModel(s->l->compiled, p->number, p->inputs, p->given, p->outputs, s->read->buffers);
  return status != KB_OK ? status : done == 0 ? KB_OK : kb_litert_refused(message, "run", done);
}

/* What was read stays for all steps: the buffers of a step's other inputs. */
static kb_status fix(steps *s, program *p, kb_message *message) {
  size_t i, at;
  for (i = 0; i < p->inputs; i++) {
    const part *given = p->from[i] == FIXED && s->read ? find(s->reader->out, s->reader->outputs, p->in[i].name, &at) : NULL;
    if (p->from[i] != FIXED) continue;
    if (given == NULL || !same_type(given, p->in + i)) return kb_litert_differs(message, p->name, "input", p->in[i].name);
    p->fixed[i] = s->read->buffers[at];
  }
  return KB_OK;
}

static kb_status programs_grow(void *context, const char *signature, int begin, int from_read, kb_message *message) {
  steps *s = context;
  program *p, *old = s->now;
  size_t i;
  kb_status status = program_of(s, signature, 1, &p, message);
  if (status != KB_OK) return status;
  for (i = 0; old != NULL && i < KB_MOST_BEAMS; i++) {
    if (begin) give(old, s->states + i);
    give(old, s->after + i);
  }
  for (i = 0; status == KB_OK && i < KB_MOST_BEAMS; i++) {
    if (begin ? i == 0 : s->states[i] != NULL)
      status = widened(s, p, begin ? s->reader : old, begin ? (from_read ? s->read : NULL) : s->states[i], s->after + i, message);
  }
  for (i = 0; i < KB_MOST_BEAMS; i++) {
    if (old != NULL) give(old, s->states + i);
    s->states[i] = s->after[i], s->after[i] = NULL;
  }
  s->now = p;
  return status == KB_OK ? fix(s, p, message) : status;
}

static kb_status programs_step(void *context, int32_t token, int32_t column, size_t from, size_t to, const float **logits, size_t *width, kb_message *message) {
  steps *s = context;
  program *p = s->now;
  void *inputs[MOST_STATES];
  size_t i;
  int done = 0;
  kb_status status = KB_OK;
  if (p == NULL || from >= KB_MOST_BEAMS || to >= KB_MOST_BEAMS || s->states[from] == NULL) return kb_fail(message, KB_ARGUMENT, "a step from a state that is not there");
  for (i = 0; i < p->inputs && done == 0; i++) {
    int own = p->from[i] == TOKEN || p->from[i] == COLUMN;
    if (own && p->given[i] == NULL) done = make_buffer(s, p, i, 0, p->given + i);
    if (own && done == 0) done = kb_litert_copy(s->l, p->given[i], p->from[i] == TOKEN ? &token : &column, sizeof token, 1);
    inputs[i] = own ? p->given[i] : p->from[i] == FIXED ? p->fixed[i] : s->states[from]->buffers[p->from[i]];
  }
  give(p, s->after + to);
  if (done == 0) status = take(s, p, s->after + to, message);
  if (status != KB_OK) return status;
  if (done == 0) done = s->l->call.RunCompiledModel(s->l->compiled, p->number, p->inputs, inputs, p->outputs, s->after[to]->buffers);
  *width = p->out[p->logits].values;
  if (!kb_reserve((void **)&s->values, &s->values_room, *width, sizeof *s->values)) return kb_no_memory(message);
  if (done == 0) done = kb_litert_copy(s->l, s->after[to]->buffers[p->logits], s->values, *width * sizeof *s->values, 0);
  if (done != 0) return kb_litert_refused(message, "run", done);
  *logits = s->values;
  return KB_OK;
}

static void programs_turn(void *context) {
  steps *s = context;
  size_t i;
  for (i = 0; i < KB_MOST_BEAMS; i++) {
    if (s->now != NULL) give(s->now, s->states + i);
    s->states[i] = s->after[i], s->after[i] = NULL;
  }
}

static void programs_close(void *context) {
  steps *s = context;
  program *p;
  programs_turn(s), programs_turn(s); /* all sets are idle now */
  if (s->read != NULL) give(s->reader, &s->read);
  while ((p = s->programs) != NULL) s->programs = p->next, free_program(s, p);
  free(s->values);
  free(s);
}

kb_status kb_litert_programs(kb_network *network, const char *logits, kb_programs *programs, kb_message *message) {
  steps *s = calloc(1, sizeof *s);
  if (s == NULL) return kb_no_memory(message);
  s->l = network->context, s->logits = logits;
  programs->context = s, programs->read = programs_read, programs->grow = programs_grow, programs->step = programs_step;
  programs->turn = programs_turn, programs->close = programs_close;
  return KB_OK;
}
#else
typedef int kb_no_steps_of_webassembly; /* a file is not empty in C99 */
#endif
