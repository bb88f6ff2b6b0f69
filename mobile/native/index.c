/* Texts with int8 vectors in one file (runtime/stored_index.py has its form), and those nearest to a vector. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { HEAD = 64, CHECKSUM = 28 };
static const char magic[8] = {'K', 'B', 'I', 'N', 'D', 'E', 'X', 1};

struct kb_index {
  kb_text mapped; /* the file, where it was opened by its path */
  size_t count, width;
  const uint8_t *inverse, *vectors, *places, *texts;
};

static uint64_t number(const uint8_t *data, int bytes) {
  uint64_t value = 0;
  while (bytes-- > 0) value = value << 8 | data[bytes];
  return value;
}

static double inverse_of(const kb_index *index, size_t i) {
  uint32_t bits = (uint32_t)number(index->inverse + 4 * i, 4);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint64_t place(const kb_index *index, size_t i) { return number(index->places + 8 * i, 8); }

/* The CRC-32 of zlib. */
static uint32_t checksum(const uint8_t *data, size_t size) {
  uint32_t table[256], value = 0xffffffffu, i;
  for (i = 0; i < 256; i++) {
    uint32_t entry = i;
    int bit;
    for (bit = 0; bit < 8; bit++) entry = (entry & 1) != 0 ? entry >> 1 ^ 0xedb88320u : entry >> 1;
    table[i] = entry;
  }
  while (size-- > 0) value = value >> 8 ^ table[(value ^ *data++) & 255];
  return ~value;
}

static kb_status damaged(kb_message *message) {
  return kb_fail(message, KB_DAMAGED, "the index is damaged: copy it again or write it again");
}

/* The parts of a file; sizes are compared without a sum that could overflow. */
static kb_status parts(kb_index *index, const uint8_t *data, size_t size, kb_message *message) {
  uint64_t count, width, bytes, vectors, left = size, i; /* 64 bits on a phone of 32 too */
  if (size < HEAD || memcmp(data, magic, sizeof magic) != 0)
    return kb_fail(message, KB_DAMAGED, "it is no index, expected a file that kerasbert-mobile index wrote");
  count = number(data + 8, 8), bytes = number(data + 16, 8), width = number(data + 24, 4);
  left -= HEAD;
  if (count == 0 || width == 0 || count > left / (width + 20)) return damaged(message);
  vectors = count * (4 + width), vectors += (8 - (HEAD + vectors) % 8) % 8;
  if (vectors + 8 * (2 * count + 1) > left || left - vectors - 8 * (2 * count + 1) != bytes) return damaged(message);
  index->count = (size_t)count, index->width = (size_t)width;
  index->inverse = data + HEAD, index->vectors = index->inverse + 4 * count;
  index->places = index->inverse + vectors, index->texts = index->places + 8 * (2 * count + 1);
  if (place(index, 0) != 0 || place(index, 2 * index->count) != bytes) return damaged(message);
  for (i = 0; i < 2 * count; i++)
    if (place(index, (size_t)i) > place(index, (size_t)i + 1)) return damaged(message);
  for (i = 0; i < count; i++)
    if (!(inverse_of(index, (size_t)i) >= 0 && inverse_of(index, (size_t)i) <= 1)) return damaged(message);
  if (checksum(data + HEAD, size - HEAD) != number(data + CHECKSUM, 4)) return damaged(message);
  return KB_OK;
}

static kb_status of_model(const uint8_t *data, const kb_model *model, kb_message *message) {
  char wanted[65], held[65];
  int i;
  if (model == NULL) return KB_OK;
  kb_sha256(kb_model_settings(model), wanted);
  for (i = 0; i < 32; i++) snprintf(held + 2 * i, 3, "%02x", data[32 + i]);
  return memcmp(held, wanted, 64) == 0
             ? KB_OK
             : kb_fail(message, KB_ARGUMENT, "the index was made by another file than this one: make it again by this one");
}

KB_API kb_status kb_index_open(const void *data, size_t size, const kb_model *model, kb_index **index, kb_message *message) {
  kb_status status;
  kb_index *made = calloc(1, sizeof *made);
  *index = NULL;
  if (made == NULL) return kb_no_memory(message);
  status = parts(made, data, size, message);
  if (status == KB_OK) status = of_model(data, model, message);
  if (status == KB_OK) *index = made;
  else free(made);
  return status;
}

#if !defined(__wasm__)
KB_API kb_status kb_index_open_file(const char *path, const kb_model *model, kb_index **index, kb_message *message) {
  kb_text data;
  kb_status status = kb_file_map(path, &data, message);
  *index = NULL;
  if (status != KB_OK) return status;
  status = kb_index_open(data.data, data.size, model, index, message);
  if (status == KB_OK) (*index)->mapped = data;
  else kb_file_unmap(data);
  return status;
}
#endif

KB_API void kb_index_close(kb_index *index) {
  if (index == NULL) return;
#if !defined(__wasm__)
  if (index->mapped.data != NULL) kb_file_unmap(index->mapped);
#endif
  free(index);
}

KB_API size_t kb_index_count(const kb_index *index) { return index->count; }
KB_API size_t kb_index_width(const kb_index *index) { return index->width; }

/* A vector in int8, as `quantized` of answers/vector.py, and 1 / its length; 0 where a number is not finite. */
static int query_of(const float *vector, size_t width, int8_t *query, double *inverse) {
  float largest = 0;
  int64_t squares = 0;
  size_t i;
  for (i = 0; i < width; i++) {
    if (!isfinite(vector[i])) return 0;
    if (fabsf(vector[i]) > largest) largest = fabsf(vector[i]);
  }
  if (largest == 0) largest = 1;
  for (i = 0; i < width; i++) {
    volatile float scaled = vector[i] / largest * 127.0f + 12582912.0f; /* 1.5 * 2^23: what is behind the point is rounded, half to even */
    int32_t value = (int32_t)(scaled - 12582912.0f);
    query[i] = (int8_t)value, squares += value * value;
  }
  *inverse = squares > 0 ? 1 / sqrt((double)squares) : 0;
  return 1;
}

static int64_t product(const int8_t *a, const int8_t *b, size_t width) {
  int64_t sum = 0;
  size_t i, j;
  for (i = 0; i < width; i = j) {
    int32_t part = 0; /* of 65,536 numbers at most: below 2^31 */
    for (j = i; j < width && j - i < 65536; j++) part += a[j] * b[j];
    sum += part;
  }
  return sum;
}

/* Puts a hit among those that are there, best first; equal ones stay in their order. */
static void put(kb_hit *hits, size_t *found, size_t top, size_t i, double score) {
  size_t at = *found;
  if (at == top && !(score > hits[at - 1].score)) return;
  if (at < top) (*found)++;
  else at--;
  while (at > 0 && score > hits[at - 1].score) hits[at] = hits[at - 1], at--;
  hits[at].number = i, hits[at].score = score;
}

static kb_text part(const kb_index *index, size_t i) {
  kb_text text;
  text.data = (const char *)index->texts + place(index, i), text.size = (size_t)(place(index, i + 1) - place(index, i));
  return text;
}

KB_API kb_status kb_index_nearest(const kb_index *index, const float *vector, size_t width, size_t top, kb_hit *hits, size_t *found,
                                  kb_message *message) {
  double inverse;
  int8_t *query;
  size_t i;
  *found = 0;
  if (top == 0) return kb_fail(message, KB_ARGUMENT, "top is 0, expected at least 1");
  if (width != index->width)
    return kb_fail(message, KB_ARGUMENT, "the vector has %lu numbers, those of the index have %lu", (unsigned long)width,
                   (unsigned long)index->width);
  query = malloc(width);
  if (query == NULL) return kb_no_memory(message);
  if (!query_of(vector, width, query, &inverse)) {
    free(query);
    return kb_fail(message, KB_ARGUMENT, "the vector has a number that is not finite");
  }
  for (i = 0; i < index->count; i++)
    put(hits, found, top, i,
        (double)product((const int8_t *)index->vectors + i * width, query, width) * inverse_of(index, i) * inverse);
  for (i = 0; i < *found; i++)
    hits[i].id = part(index, 2 * hits[i].number), hits[i].text = part(index, 2 * hits[i].number + 1);
  free(query);
  return KB_OK;
}
