/* Mutated bundles, texts and indexes, under sanitizers: fuzz SECONDS SEED FILE... Each FILE is an index, or a bundle's files, one
   after the other: sizes of the name and of the content as eight bytes each, then both. A crash is the sanitizers'; the last line
   tells the runs, and how many mutated indexes were opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kerasbert.h"

#define MOST_FILES 16

typedef struct blob { unsigned char *data; size_t size; } blob;

static unsigned long long state;
static volatile unsigned long read_through; /* of bytes that are there to be read */

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
  read_through = sum;
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

static void write_number(blob *b, size_t at, unsigned long long value, int bytes) {
  for (; bytes > 0 && at < b->size; bytes--, value >>= 8) b->data[at++] = (unsigned char)value;
}

static unsigned long long read_number(const blob *b, size_t at, int bytes) {
  unsigned long long value = 0;
  while (bytes-- > 0) value = value << 8 | b->data[at + (size_t)bytes];
  return value;
}

/* Sizes of the head, the ends of the places and the checksum as they must be, so that a reader goes on to what was mutated. */
static void repair(blob *b) {
  unsigned long long count, body, texts;
  if (b->size < 64) return;
  if (draw(4)) {
    count = read_number(b, 8, 8), body = count * (4 + read_number(b, 24, 4)), body += (8 - body % 8) % 8;
    texts = 64 + body + 8 * (2 * count + 1);
    if (count < b->size && texts <= b->size) {
      write_number(b, 16, b->size - texts, 8);
      write_number(b, (size_t)(64 + body), 0, 8), write_number(b, (size_t)texts - 8, b->size - texts, 8);
    }
  }
  if (draw(16)) write_number(b, 28, crc(b->data + 64, b->size - 64), 4);
}

/* A mutated index: where it opens, hits lie within it, each number once. */
static int searched(const blob *whole) {
  static float vector[4096];
  static kb_hit hits[64];
  blob b = copy(whole->data, whole->size);
  size_t found, i, k, top = draw(64), count, width;
  unsigned char *exact;
  kb_message message;
  kb_index *index;
  int opened;
  if (draw(2)) mutate(&b);
  if (draw(4) == 0 && b.size >= 32) write_number(&b, draw(2) ? 8 : 24, draw(2) ? draw(40) : 0xFFFFFFFFu - draw(40), draw(2) ? 4 : 1);
  if (draw(4) == 0 && b.size >= 72) write_number(&b, 64 + draw((unsigned)b.size - 64), draw(2) ? draw(2000) : 0x7FC00000u, 4);
  repair(&b);
  exact = malloc(b.size ? b.size : 1); /* so that a byte behind the end is found */
  if (exact == NULL) exit(2);
  memcpy(exact, b.data, b.size);
  opened = kb_index_open(exact, b.size, NULL, &index, &message) == KB_OK;
  if (opened) {
    count = kb_index_count(index), width = kb_index_width(index);
    for (i = 0; i < 4096; i++) vector[i] = (float)draw(200) - 100;
    if (draw(8) == 0) width = draw(4096);
    if (width <= 4096 && kb_index_nearest(index, vector, width, top, hits, &found, &message) == KB_OK) {
      unsigned long sum = 0;
      if (found != (top < count ? top : count)) abort();
      for (i = 0; i < found; i++) {
        if (hits[i].number >= count) abort();
        for (k = 0; k < i; k++)
          if (hits[k].number == hits[i].number || !(hits[k].score >= hits[i].score)) abort();
        for (k = 0; k < hits[i].id.size; k++) sum += (unsigned char)hits[i].id.data[k];
        for (k = 0; k < hits[i].text.size; k++) sum += (unsigned char)hits[i].text.data[k];
      }
      read_through = sum;
    }
    kb_index_close(index);
  }
  free(exact), free(b.data);
  return opened;
}

static blob read_whole(const char *path) {
  FILE *file = fopen(path, "rb");
  unsigned char block[4096];
  size_t size;
  blob made = {NULL, 0};
  if (file == NULL) exit(2);
  put(&made, "", 0);
  while ((size = fread(block, 1, sizeof block, file)) > 0) put(&made, block, size);
  fclose(file);
  return made;
}

/* The files in a FILE. */
static size_t files_of(const blob *whole, kb_file *files) {
  size_t count = 0, at = 0;
  while (count < MOST_FILES && at + 16 <= whole->size) {
    size_t name = (size_t)read_number(whole, at, 8), content = (size_t)read_number(whole, at + 8, 8);
    if (name + content > whole->size - at - 16) exit(2);
    files[count].name.data = (const char *)whole->data + at + 16, files[count].name.size = name;
    files[count].content.data = files[count].name.data + name, files[count++].content.size = content;
    at += 16 + name + content;
  }
  return count;
}

int main(int count, char **arguments) {
  double seconds = count > 1 ? atof(arguments[1]) : 0;
  unsigned long runs = 0, searches = 0, opened = 0;
  kb_tokens *tokens = kb_tokens_new();
  if (count < 4 || tokens == NULL) return 2;
  state = strtoull(arguments[2], NULL, 10) * 2 + 1;
  while ((double)clock() / CLOCKS_PER_SEC < seconds) {
    kb_file files[MOST_FILES];
    blob whole = read_whole(arguments[3 + draw((unsigned)count - 3)]);
    int i;
    if (whole.size > 8 && memcmp(whole.data, "KBINDEX", 7) == 0)
      for (i = 0; i < 200; i++, runs++, searches++) opened += (unsigned long)searched(&whole);
    else {
      size_t held = files_of(&whole, files);
      for (i = 0; i < 20; i++, runs++) one(files, held, tokens);
    }
    free(whole.data);
  }
  kb_tokens_free(tokens);
  printf("%lu runs without a finding in %.0f seconds of CPU; %lu of %lu indexes opened\n", runs, (double)clock() / CLOCKS_PER_SEC, opened,
         searches);
  return 0;
}
