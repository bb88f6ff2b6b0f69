/* Mutated bundles and texts, under sanitizers: fuzz SECONDS SEED FILE... Each FILE is a bundle's files, one after the other:
   sizes of the name and of the content as eight bytes each, then both. A crash is the sanitizers'; the last line tells the runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kerasbert.h"

#define MOST_FILES 16

typedef struct blob { unsigned char *data; size_t size; } blob;

static unsigned long long state;

static unsigned draw(unsigned below) { /* xorshift64* */
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (unsigned)((state * 0x2545F4914F6CDD1Du) >> 33) % below;
}

static blob copy(const void *data, size_t size) {
  blob made;
  made.data = malloc(size + 1), made.size = size;
  if (made.data == NULL) exit(2);
  memcpy(made.data, data, size);
  return made;
}

/* Changes, removes, repeats or cuts off some bytes. */
static void mutate(blob *b) {
  static const unsigned char odd[] = {0, 1, 0x7F, 0x80, 0xBF, 0xC2, 0xED, 0xF4, 0xFF, '"', '{', '[', '\\', '-', '9', ' '};
  unsigned rounds = 1 + draw(4);
  while (rounds-- > 0 && b->size > 0) {
    size_t at = draw((unsigned)b->size), size = 1 + draw(8);
    if (size > b->size - at) size = b->size - at;
    switch (draw(6)) {
      case 0: b->data[at] ^= (unsigned char)(1u << draw(8)); break;
      case 1: b->data[at] = odd[draw(sizeof odd)]; break;
      case 2: memmove(b->data + at, b->data + at + size, b->size - at - size), b->size -= size; break;
      case 3: b->size = draw(8) == 0 ? at : b->size; break;
      case 4: memmove(b->data + at, b->data + draw((unsigned)(b->size - size + 1)), size); break;
      default: b->data[at] = (unsigned char)draw(256);
    }
  }
}

static void put(blob *out, const void *data, size_t size) {
  out->data = realloc(out->data, out->size + size + 1);
  if (out->data == NULL) exit(2);
  memcpy(out->data + out->size, data, size);
  out->size += size;
}

static void put_number(blob *out, unsigned long value, int bytes) {
  for (; bytes > 0; bytes--, value >>= 8) {
    unsigned char byte = (unsigned char)value;
    put(out, &byte, 1);
  }
}

static unsigned long crc(const unsigned char *data, size_t size) {
  unsigned long value = 0xffffffffu;
  size_t i;
  int k;
  for (i = 0; i < size; i++)
    for (value ^= data[i], k = 0; k < 8; k++) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
  return ~value & 0xffffffffu;
}

/* A zip of the files, with right checksums. */
static blob zip(const kb_file *files, size_t count) {
  blob out = {NULL, 0}, directory = {NULL, 0};
  size_t i, at;
  put(&out, "flatbuffer", 10);
  for (i = 0; i < count; i++) {
    blob head = {NULL, 0};
    at = out.size - 10;
    put_number(&head, 20, 2), put_number(&head, 0, 2), put_number(&head, 0, 2), put_number(&head, 0x00210000, 4);
    put_number(&head, crc((const unsigned char *)files[i].content.data, files[i].content.size), 4);
    put_number(&head, (unsigned long)files[i].content.size, 4), put_number(&head, (unsigned long)files[i].content.size, 4);
    put_number(&head, (unsigned long)files[i].name.size, 2), put_number(&head, 0, 2);
    put_number(&out, 0x04034b50u, 4), put(&out, head.data, head.size);
    put(&out, files[i].name.data, files[i].name.size), put(&out, files[i].content.data, files[i].content.size);
    put_number(&directory, 0x02014b50u, 4), put_number(&directory, 20, 2), put(&directory, head.data, head.size);
    put_number(&directory, 0, 2), put_number(&directory, 0, 2), put_number(&directory, 0, 2), put_number(&directory, 0, 4);
    put_number(&directory, (unsigned long)at, 4), put(&directory, files[i].name.data, files[i].name.size);
    free(head.data);
  }
  at = out.size - 10;
  put(&out, directory.data, directory.size);
  put_number(&out, 0x06054b50u, 4), put_number(&out, 0, 4), put_number(&out, (unsigned long)count, 2);
  put_number(&out, (unsigned long)count, 2), put_number(&out, (unsigned long)directory.size, 4);
  put_number(&out, (unsigned long)at, 4), put_number(&out, 0, 2);
  free(directory.data);
  return out;
}

/* Bytes that are nearly UTF-8. */
static blob text(void) {
  static const char *const some[] = {"the ", "unaffable", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", " ", "[MASK]", "e\xCC\x81", "\xE2\x96\x81",
                                     "@USER", "[E1]", "'ll", "\n\n ", "\xEA\xB0\x81", "\xE0\xBD\xB3\xCC\xB4", "12", "\xC4\xB0", "<mask>"};
  blob out = {NULL, 0};
  unsigned count = draw(40);
  put(&out, "", 0);
  while (count-- > 0) {
    const char *each = some[draw(sizeof some / sizeof *some)];
    put(&out, each, strlen(each));
  }
  if (draw(2)) mutate(&out);
  return out;
}

/* Reads every byte of a typed answer; offsets lie within the texts. */
static void typed(const kb_result *result, const kb_text *texts, size_t count) {
  const kb_span *lists[2];
  size_t sizes[2], i, k, n, most = 0;
  unsigned long sum = 0;
  lists[0] = result->spans, lists[1] = result->entities, sizes[0] = result->span_count, sizes[1] = result->entity_count;
  for (i = 0; i < count; i++) most += texts[i].size + (i > 0);
  for (i = 0; i < 2; i++)
    for (k = 0; k < sizes[i]; k++) {
      const kb_span *span = lists[i] + k;
      if (span->bytes.start > span->bytes.end || span->bytes.end > most || span->units.end > most) abort();
      for (n = 0; n < span->text.size; n++) sum += (unsigned char)span->text.data[n];
      for (n = 0; n < span->label.size; n++) sum += (unsigned char)span->label.data[n];
    }
  for (i = 0; i < result->label_count; i++)
    for (n = 0; n < result->labels[i].name.size; n++) sum += (unsigned char)result->labels[i].name.data[n];
  for (n = 0; n < result->text.size; n++) sum += (unsigned char)result->text.data[n];
  for (n = 0; n < result->value_count; n++) sum += (unsigned long)(result->values[n] * 0);
  if (sum == 1) abort();
}

/* Rows and an answer of a model that was opened. */
static void answer(const kb_model *model, const kb_text *texts, size_t count) {
  static float numbers[1 << 17];
  const float *outputs[512];
  size_t sizes[512], i, labels = kb_model_labels(model);
  kb_message message;
  kb_text json;
  kb_rows *rows;
  const char *kind = kb_model_kind(model);
  if (kb_rows_make(model, texts, count, (int32_t)draw(2), &rows, &message) != KB_OK) return;
  for (i = 0; i < kb_rows_count(rows) && i < 512; i++) {
    kb_row row = kb_rows_row(rows, i);
    size_t width = labels ? labels : strcmp(kind, "span") == 0 ? 2 : strcmp(kind, "tokens") == 0 ? 3000 : 1;
    outputs[i] = numbers + draw(100), sizes[i] = width * (strcmp(kind, "span") == 0 || strcmp(kind, "tags") == 0 ? row.length : 1);
    if (sizes[i] > (1 << 17) - 100) break;
  }
  if (numbers[0] == 0)
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = (float)draw(2000) / 300 - 3;
  if (i == kb_rows_count(rows)) {
    int answered = kb_answer(model, rows, outputs, sizes, &json, &message) == KB_OK;
    if (answered != (kb_rows_result(rows) != NULL)) abort();
    if (answered) typed(kb_rows_result(rows), texts + (strcmp(kind, "span") == 0), count - (strcmp(kind, "span") == 0));
  }
  kb_rows_free(rows);
}

/* A network of random numbers, now and then too few, too many or none. */
static kb_status network(void *context, const char *signature, const kb_input *inputs, size_t count, const char *output, const float **values,
                         size_t *size, kb_message *message) {
  const kb_model *model = context;
  const char *kind = kb_model_kind(model);
  size_t i, k, width = kb_model_labels(model) ? kb_model_labels(model) : strcmp(kind, "span") == 0 ? 2 : strcmp(kind, "tokens") == 0 ? 3000 : 1;
  static float numbers[1 << 17];
  unsigned long sum = strlen(signature) + strlen(output);
  (void)message;
  for (i = 0; i < count; i++) /* every byte is there */
    for (k = 0; k < inputs[i].count * (inputs[i].is_bool ? 1 : 4); k++) sum += ((const unsigned char *)inputs[i].data)[k];
  for (i = 0; i < 100; i++) numbers[draw(1 << 17)] = (float)(draw(2000) + sum % 2) / 300 - 3;
  *values = numbers, *size = width * (strcmp(kind, "span") == 0 || strcmp(kind, "tags") == 0 ? inputs[0].count : 1);
  if (draw(16) == 0) *size = draw(200);
  if (*size > 1 << 17) *size = 1 << 17;
  return draw(64) == 0 ? KB_INTERPRETER : KB_OK;
}

static void run(const kb_model *model, const kb_text *texts, size_t count) {
  kb_network over = {NULL, network, NULL};
  kb_runner_options options = {NULL, 0, 0, NULL};
  kb_message message;
  kb_runner *runner;
  kb_text json;
  over.context = (void *)model, options.rows = draw(2) ? 40 : 0;
  if (kb_runner_over(model, &over, &options, &runner, &message) != KB_OK) return;
  kb_runner_answer(runner, texts, count, (int32_t)draw(2), &json, &message);
  kb_runner_answer(runner, texts, 1, 0, &json, &message);
  kb_runner_close(runner);
}

static void one(kb_file *files, size_t count, kb_tokens *tokens) {
  blob changed[MOST_FILES], zipped, said[3];
  kb_file given[MOST_FILES];
  kb_text texts[3];
  kb_message message;
  kb_tokenizer *tokenizer;
  kb_model *model;
  size_t i, victim = draw((unsigned)count);
  for (i = 0; i < count; i++) {
    changed[i] = copy(files[i].content.data, files[i].content.size);
    if (i == victim && draw(4)) mutate(&changed[i]);
    given[i].name = files[i].name, given[i].content.data = (const char *)changed[i].data, given[i].content.size = changed[i].size;
  }
  for (i = 0; i < 3; i++) said[i] = text(), texts[i].data = (const char *)said[i].data, texts[i].size = said[i].size;
  if (kb_tokenizer_open(given, count, &tokenizer, &message) == KB_OK) {
    kb_tokenize(tokenizer, texts[0], tokens, &message);
    kb_encode(tokenizer, texts[1], tokens, &message);
    kb_pack(tokenizer, texts[0], draw(2) ? texts + 1 : NULL, draw(30), tokens, &message);
    kb_tokenizer_close(tokenizer);
  }
  zipped = zip(given, count);
  if (draw(8) == 0) mutate(&zipped);
  if (kb_model_open(zipped.data, zipped.size, &model, &message) == KB_OK) {
    for (i = 0; i < 3; i++) answer(model, texts, 1 + draw(3));
    run(model, texts, 1 + draw(3));
    kb_model_close(model);
  }
  free(zipped.data);
  for (i = 0; i < 3; i++) free(said[i].data);
  for (i = 0; i < count; i++) free(changed[i].data);
}

/* The files in a FILE. */
static size_t read_files(const char *path, kb_file *files) {
  FILE *file = fopen(path, "rb");
  unsigned char sizes[16];
  size_t count = 0, i;
  if (file == NULL) exit(2);
  while (count < MOST_FILES && fread(sizes, 1, 16, file) == 16) {
    size_t size[2] = {0, 0};
    char *data;
    for (i = 0; i < 16; i++) size[i / 8] |= (size_t)sizes[i] << (i % 8 * 8);
    data = malloc(size[0] + size[1] + 1);
    if (data == NULL || fread(data, 1, size[0] + size[1], file) != size[0] + size[1]) exit(2);
    files[count].name.data = data, files[count].name.size = size[0];
    files[count].content.data = data + size[0], files[count++].content.size = size[1];
  }
  fclose(file);
  return count;
}

int main(int count, char **arguments) {
  double seconds = count > 1 ? atof(arguments[1]) : 0;
  unsigned long runs = 0;
  kb_tokens *tokens = kb_tokens_new();
  if (count < 4 || tokens == NULL) return 2;
  state = strtoull(arguments[2], NULL, 10) * 2 + 1;
  while ((double)clock() / CLOCKS_PER_SEC < seconds) {
    kb_file files[MOST_FILES];
    size_t i, files_count = read_files(arguments[3 + draw((unsigned)count - 3)], files);
    for (i = 0; i < 20; i++, runs++) one(files, files_count, tokens);
    for (i = 0; i < files_count; i++) free((void *)files[i].name.data);
  }
  kb_tokens_free(tokens);
  printf("%lu runs without a finding in %.0f seconds of CPU\n", runs, (double)clock() / CLOCKS_PER_SEC);
  return 0;
}
