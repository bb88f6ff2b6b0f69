/* Text -> answer: the rows of an input run in the shortest signatures that hold them, as mobile/runtime does. */
#if !defined(__wasm__)
#include <stdlib.h>

#include "litert.h"
#include "runner.h"

#define MOST_THREADS 256
#define MOST_SIGNATURES 4096

static const char *const filled[] = {"token_ids", "segment_ids", "padding_mask", "positions"};
enum { TOKENS, SEGMENTS, MASK, POSITIONS, FILLED };

/* ---- what the bundle says ---- */

static kb_status damaged(kb_message *message, const char *what) {
  return kb_fail(message, KB_DAMAGED, "the bundle has %s: write the file again", what);
}

const char *kb_runner_string(kb_runner *r, const kb_json *json, uint32_t node) {
  size_t at = r->names.count;
  kb_text text;
  if (node == 0 || json->nodes[node].type != KB_STRING) return NULL;
  text = json->nodes[node].text;
  if (text.size == 0 || memchr(text.data, 0, text.size) != NULL || r->names.room - at <= text.size) return NULL;
  kb_push_bytes(&r->names, text.data, text.size);
  kb_push_byte(&r->names, 0);
  return (const char *)r->names.data + at;
}

int kb_by_length(const void *a, const void *b) {
  size_t one = ((const kb_signature *)a)->length, other = ((const kb_signature *)b)->length;
  return one < other ? -1 : one > other;
}

/* Signatures and the name of their one output. */
static kb_status read_signatures(kb_runner *r, const kb_json *json, kb_message *message) {
  uint32_t list = kb_json_get(json, 0, "signatures"), at = list + 1, any = kb_json_get(json, 0, "any_length");
  size_t count = json->nodes[list].count, i; /* a list that model.c has looked at */
  if (count > MOST_SIGNATURES) return damaged(message, "too many signatures");
  r->signatures = calloc(count, sizeof *r->signatures);
  if (r->signatures == NULL) return kb_no_memory(message);
  for (i = 0; i < count; i++, at = json->nodes[at].next) {
    uint32_t outputs = kb_json_get(json, at, "outputs");
    const char *output;
    long length = 0;
    r->signatures[i].name = kb_runner_string(r, json, kb_json_get(json, at, "name"));
    kb_json_integer(json, kb_json_get(json, kb_json_get(json, at, "lengths"), "S"), &length, 1, KB_MOST_LENGTH);
    r->signatures[i].length = (size_t)length;
    if (r->signatures[i].name == NULL || outputs == 0 || json->nodes[outputs].type != KB_OBJECT) return damaged(message, "a signature without a name or outputs");
    if (json->nodes[outputs].count != 1) return kb_fail(message, KB_UNSUPPORTED, "a file with signatures of several outputs");
    output = kb_runner_string(r, json, outputs + 2);
    if (output == NULL || (r->output != NULL && strcmp(r->output, output) != 0)) return damaged(message, "signatures with different outputs");
    r->output = output;
  }
  qsort(r->signatures, count, sizeof *r->signatures, kb_by_length);
  for (i = 1; i < count; i++)
    if (r->signatures[i].length == r->signatures[i - 1].length) return damaged(message, "two signatures of one length");
  r->signature_count = count, r->any_length = any && json->nodes[any].type == KB_TRUE;
  return r->any_length && count != 1 ? damaged(message, "several signatures of any length") : KB_OK;
}

static kb_status read_inputs(kb_runner *r, const kb_json *json, kb_message *message) {
  uint32_t list = kb_json_get(json, 0, "inputs"), at = list + 1;
  size_t count = json->nodes[list].count, i, k;
  if (count < 1 || count > KB_MOST_INPUTS) return damaged(message, "no inputs, or too many");
  for (i = 0; i < count; i++, at = json->nodes[at].next) {
    kb_reads *input = r->inputs + i;
    uint32_t name = kb_json_get(json, at, "name"), dtype = kb_json_get(json, at, "dtype"), pad = kb_json_get(json, at, "pad");
    long number = 0;
    if (name == 0 || json->nodes[name].type != KB_STRING) return damaged(message, "an input without a name");
    while (input->what < FILLED && !kb_is(json->nodes[name].text, filled[input->what])) input->what++;
    if (input->what == FILLED) return kb_fail(message, KB_UNSUPPORTED, "a file with the input '%s'", kb_show(json->nodes[name].text).text);
    input->name = kb_runner_string(r, json, kb_json_get(json, at, "signature"));
    input->is_bool = dtype && kb_is(json->nodes[dtype].text, "bool");
    if (input->name == NULL || (dtype && !input->is_bool && !kb_is(json->nodes[dtype].text, "int32"))) return damaged(message, "an input of no name or type");
    if (pad && !kb_json_integer(json, pad, &number, input->is_bool ? 0 : INT32_MIN, input->is_bool ? 1 : INT32_MAX)) return damaged(message, "an input of a pad that is none");
    input->pad = (int32_t)number;
    for (k = 0; k < i; k++)
      if (r->inputs[k].what == input->what || strcmp(r->inputs[k].name, input->name) == 0) return damaged(message, "an input twice");
  }
  r->input_count = count;
  return KB_OK;
}

static kb_status read_settings(kb_runner *r, kb_message *message) {
  kb_json json;
  kb_status status = kb_json_open(&json, r->model->settings, "bundle.json", message);
  if (status != KB_OK) return status;
  /* names are pointed to, so that their room must not grow */
  if (!kb_reserve((void **)&r->names.data, &r->names.room, 2 * r->model->settings.size + 16, 1)) status = kb_no_memory(message);
  if (status == KB_OK) status = r->model->generation ? kb_writer_open(r, &json, message) : read_signatures(r, &json, message);
  if (status == KB_OK) status = read_inputs(r, &json, message);
  kb_json_close(&json);
  return status;
}

/* The bytes before the bundle are those that it was written behind. */
static kb_status check_digest(const kb_model *model, kb_text data, kb_message *message) {
  char hex[65];
  kb_json json;
  uint32_t node;
  int same;
  kb_text front = {data.data, model->front};
  kb_status status = kb_json_open(&json, model->settings, "bundle.json", message);
  if (status != KB_OK) return status;
  kb_sha256(front, hex);
  node = kb_json_get(&json, 0, "digest");
  same = node && json.nodes[node].type == KB_STRING && kb_is(json.nodes[node].text, hex);
  kb_json_close(&json);
  return same ? KB_OK : kb_fail(message, KB_DAMAGED, "the file is damaged: its first part has not the sha256 of its bundle. Copy it again or write it again");
}

/* ---- opening ---- */

static kb_status new_runner(const kb_model *model, const kb_runner_options *options, kb_runner **runner, kb_message *message) {
  kb_runner *r;
  kb_status status;
  *runner = NULL;
  if (options != NULL && (options->threads < 0 || options->threads > MOST_THREADS))
    return kb_fail(message, KB_ARGUMENT, "threads is %ld, expected 1 to %d", (long)options->threads, MOST_THREADS);
  if (options != NULL && options->rows > KB_MOST_ROWS)
    return kb_fail(message, KB_ARGUMENT, "rows is %lu, expected 1 to %d", (unsigned long)options->rows, KB_MOST_ROWS);
  if (options != NULL && options->delegate != NULL && !kb_litert_delegate(options->delegate))
    return kb_fail(message, KB_ARGUMENT, "delegate is '%.40s', expected xnnpack, gpu or npu", options->delegate);
  r = calloc(1, sizeof *r);
  if (r == NULL) return kb_no_memory(message);
  r->model = model, r->most_rows = options != NULL && options->rows ? options->rows : KB_MOST_ROWS;
  status = read_settings(r, message);
  if (status == KB_OK) *runner = r;
  else kb_runner_close(r);
  return status;
}

KB_API kb_status kb_runner_over(const kb_model *model, const kb_network *network, const kb_runner_options *options, kb_runner **runner, kb_message *message) {
  kb_status status;
  *runner = NULL;
  if (options != NULL && (options->library != NULL || options->threads != 0 || options->delegate != NULL))
    return kb_fail(message, KB_ARGUMENT, "library, threads and delegate are of LiteRT's library, and the network is another");
  status = new_runner(model, options, runner, message);
  if (status == KB_OK) (*runner)->network = *network;
  return status;
}

KB_API kb_status kb_runner_open_bytes(const void *data, size_t size, const kb_runner_options *options, kb_runner **runner, kb_message *message) {
  kb_model *model;
  kb_text whole, front;
  kb_status status = kb_model_open(data, size, &model, message);
  *runner = NULL;
  if (status != KB_OK) return status;
  whole.data = data, whole.size = size;
  front.data = data, front.size = model->front;
  status = check_digest(model, whole, message);
  if (status == KB_OK) status = kb_check_operators(front, message);
  if (status == KB_OK) status = new_runner(model, options, runner, message);
  if (status != KB_OK) {
    kb_model_close(model);
    return status;
  }
  (*runner)->own = model;
  status = kb_litert_open(front, options, &(*runner)->cancelled, &(*runner)->network, message);
  if (status == KB_OK && (*runner)->writer != NULL) status = kb_writer_over((*runner)->writer, &(*runner)->network, message);
  if (status != KB_OK) {
    kb_runner_close(*runner);
    *runner = NULL;
  }
  return status;
}

KB_API kb_status kb_runner_open(const char *path, const kb_runner_options *options, kb_runner **runner, kb_message *message) {
  kb_text data = {NULL, 0};
  kb_status status = kb_file_map(path, &data, message);
  *runner = NULL;
  if (status == KB_OK) status = kb_runner_open_bytes(data.data, data.size, options, runner, message);
  if (status == KB_OK) (*runner)->mapped = data;
  else kb_file_unmap(data);
  return status;
}

KB_API void kb_runner_close(kb_runner *r) {
  if (r == NULL) return;
  kb_writer_close(r->writer);
  if (r->network.close != NULL) r->network.close(r->network.context);
  kb_rows_free(r->rows);
  kb_model_close(r->own);
  if (r->mapped.size > 0) kb_file_unmap(r->mapped);
  free(r->names.data);
  free(r->signatures);
  free(r->numbers);
  free(r->values);
  free(r);
}

KB_API const kb_model *kb_runner_model(const kb_runner *runner) { return runner->model; }
KB_API void kb_runner_cancel(kb_runner *runner) { kb_exchange(&runner->cancelled, 1); }

/* ---- answering ---- */

/* The numbers of an input for a row, padded to `length` -> `input`; `place`: memory for them, `length` numbers. */
static void fill(const kb_reads *from, const kb_row *row, size_t length, int32_t *place, kb_input *input) {
  size_t i, count = from->what == POSITIONS ? 1 : length;
  for (i = 0; i < count; i++)
    place[i] = from->what == POSITIONS ? row->position
               : i >= row->length      ? from->pad
               : from->what == TOKENS  ? row->ids[i]
               : from->what == MASK    ? 1
                                       : row->segments[i];
  for (i = 0; i < count && from->is_bool; i++) ((uint8_t *)place)[i] = (uint8_t)(place[i] != 0);
  input->name = from->name, input->data = place, input->count = count, input->is_bool = from->is_bool;
}

int kb_runner_fill(kb_runner *r, const kb_row *row, size_t length, kb_input *inputs) {
  size_t i;
  if (!kb_reserve((void **)&r->numbers, &r->numbers_room, r->input_count * length, sizeof *r->numbers)) return 0;
  for (i = 0; i < r->input_count; i++) fill(r->inputs + i, row, length, r->numbers + i * length, inputs + i);
  return 1;
}

kb_status kb_runner_cancelled(kb_message *message) { return kb_fail(message, KB_CANCELLED, "the answer was cancelled"); }

/* Runs a row and puts its numbers behind those of the rows before: at values[*used], of which there are *size. */
static kb_status run(kb_runner *r, size_t number, size_t *used, size_t *size, kb_message *message) {
  kb_row row = kb_rows_row(r->rows, number);
  kb_input inputs[KB_MOST_INPUTS];
  const kb_signature *s = r->signatures;
  const float *values = NULL;
  size_t length;
  kb_status status;
  while (s->length < row.length) s++; /* a row is not longer than the longest */
  length = r->any_length ? row.length : s->length;
  if (!kb_runner_fill(r, &row, length, inputs)) return kb_no_memory(message);
  if (kb_load(&r->cancelled)) return kb_runner_cancelled(message);
  status = r->network.run(r->network.context, s->name, inputs, r->input_count, r->output, &values, size, message);
  if (status != KB_OK) /* LiteRT tells a stop in other ways than its own too */
    return kb_load(&r->cancelled) ? kb_runner_cancelled(message) : status;
  if (r->model->kind->per_token) {
    if (*size % length != 0) return kb_fail(message, KB_DAMAGED, "the network gives %lu numbers of %lu tokens: write the file again", (unsigned long)*size, (unsigned long)length);
    *size = *size / length * row.length; /* without the padding */
  }
  if (*size > KB_MOST_VALUES || !kb_reserve((void **)&r->values, &r->values_room, *used + *size, sizeof *r->values)) return kb_no_memory(message);
  if (*size > 0) memcpy(r->values + *used, values, *size * sizeof *values);
  *used += *size;
  return KB_OK;
}

/* `prompt`: its name; NULL: the default. */
static kb_status answer(kb_runner *r, const kb_text *prompt, const kb_text *texts, size_t count, int32_t words, kb_text *json, kb_message *message) {
  size_t i, at, used = 0, rows, *sizes;
  const float **outputs;
  kb_status status;
  kb_rows_free(r->rows);
  status = prompt ? kb_rows_prompted(r->model, *prompt, texts, count, &r->rows, message) : kb_rows_make(r->model, texts, count, words, &r->rows, message);
  if (status != KB_OK) return status;
  rows = kb_rows_count(r->rows);
  if (rows > r->most_rows)
    return kb_fail(message, KB_ARGUMENT, "the input takes %lu rows of %lu tokens, expected at most %lu: split it", (unsigned long)rows,
                   (unsigned long)r->model->longest, (unsigned long)r->most_rows);
  sizes = calloc(rows + 1, sizeof *sizes), outputs = calloc(rows + 1, sizeof *outputs);
  if (sizes == NULL || outputs == NULL) status = kb_no_memory(message);
  for (i = 0; i < rows && status == KB_OK; i++) status = run(r, i, &used, sizes + i, message);
  for (i = 0, at = 0; i < rows && status == KB_OK; at += sizes[i++]) outputs[i] = r->values + at; /* they move no more */
  if (status == KB_OK) status = kb_answer(r->model, r->rows, outputs, sizes, json, message);
  free(sizes);
  free(outputs);
  return status;
}

KB_API const kb_result *kb_runner_result(const kb_runner *runner) { return runner->writer ? kb_writer_result(runner->writer) : kb_rows_result(runner->rows); }

static kb_status one_at_a_time(kb_runner *r, const kb_text *prompt, const kb_text *texts, size_t count, int32_t words, kb_text *json, kb_message *message) {
  kb_status status;
  if (kb_exchange(&r->busy, 1)) return kb_fail(message, KB_ARGUMENT, "the runner answers another thread: open one for each, or take turns");
  kb_exchange(&r->cancelled, 0);
  status = answer(r, prompt, texts, count, words, json, message);
  kb_exchange(&r->busy, 0);
  return status;
}

KB_API kb_status kb_runner_prompted(kb_runner *r, kb_text prompt, const kb_text *texts, size_t count, kb_text *json, kb_message *message) {
  kb_text before;
  kb_status status = kb_model_prompt(r->model, prompt, &before, message);
  json->data = NULL, json->size = 0;
  if (status != KB_OK) return status;
  return one_at_a_time(r, &prompt, texts, count, 0, json, message);
}

KB_API kb_status kb_runner_answer(kb_runner *r, const kb_text *texts, size_t count, int32_t words, kb_text *json, kb_message *message) {
  kb_text none = {NULL, 0};
  json->data = NULL, json->size = 0;
  if (r->writer != NULL) {
    if (count != 1) return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected 1", (unsigned long)count);
    return kb_runner_generate(r, texts[0], none, NULL, NULL, json, message);
  }
  return one_at_a_time(r, NULL, texts, count, words, json, message);
}
#else
typedef int kb_no_runner_of_webassembly; /* a file is not empty in C99 */
#endif
