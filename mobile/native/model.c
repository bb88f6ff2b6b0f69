/* A file that kerasbert-mobile compress wrote: the zip behind its last byte, and the settings in it (export/bundle.py). */
#include <stdio.h>
#include <stdlib.h>

#include "answers.h"

/* ---- the zip ---- */

static uint32_t little2(const uint8_t *b) { return (uint32_t)b[0] | (uint32_t)b[1] << 8; }
static uint32_t little4(const uint8_t *b) { return little2(b) | little2(b + 2) << 16; }

static uint32_t crc32(const uint8_t *data, size_t size) {
  uint32_t table[256], value = 0xffffffffu, i, k;
  size_t at;
  for (i = 0; i < 256; i++) {
    uint32_t each = i;
    for (k = 0; k < 8; k++) each = each & 1 ? 0xEDB88320u ^ each >> 1 : each >> 1;
    table[i] = each;
  }
  for (at = 0; at < size; at++) value = table[(value ^ data[at]) & 0xFF] ^ value >> 8;
  return ~value;
}

static kb_status no_bundle(kb_message *message) {
  return kb_fail(message, KB_DAMAGED, "the file carries no readable bundle, expected a .tflite file written by kerasbert-mobile compress");
}

/* The end of the directory; `size` where there is none. */
static size_t directory_end(const uint8_t *data, size_t size) {
  size_t at, least = size > 65557 ? size - 65557 : 0;
  if (size < 22) return size;
  for (at = size - 22;; at--) {
    if (little4(data + at) == 0x06054b50u && at + 22 + little2(data + at + 20) == size) return at;
    if (at == least) return size;
  }
}

/* One entry of the directory at `at`, within data[0 .. end) -> a file; `shift`: where the zip begins in the data; `front` becomes
   the file's place where it is less. */
static kb_status entry(const uint8_t *data, size_t end, size_t shift, size_t *at, size_t *front, kb_file *file, kb_message *message) {
  const uint8_t *d = data + *at;
  size_t size, name, from, i;
  if (end - *at < 46 || little4(d) != 0x02014b50u) return no_bundle(message);
  size = little4(d + 20), name = little2(d + 28);
  if (little2(d + 10) != 0 || little4(d + 24) != size || little2(d + 8) & 1 || end - *at - 46 < name) return no_bundle(message);
  file->name.data = (const char *)d + 46, file->name.size = name;
  from = little4(d + 42);
  if (from > end || shift > end - from || end - from - shift < 30 || little4(data + shift + from) != 0x04034b50u) return no_bundle(message);
  from += shift;
  if (from < *front) *front = from;
  from += 30 + little2(data + from + 26) + little2(data + from + 28);
  if (from > end || size > end - from) return no_bundle(message);
  file->content.data = (const char *)data + from, file->content.size = size;
  if (crc32(data + from, size) != little4(d + 16)) return kb_fail(message, KB_DAMAGED, "the file %s of the bundle is damaged", kb_show(file->name).text);
  for (i = 0; i < name; i++)
    if (d[46 + i] == '/' || d[46 + i] == '\\' || d[46 + i] == 0) return no_bundle(message);
  *at += 46 + name + little2(d + 30) + little2(d + 32);
  return name == 0 || *at > end ? no_bundle(message) : KB_OK;
}

static kb_status unzip(const uint8_t *data, size_t size, kb_file *files, size_t *count, size_t *front, kb_message *message) {
  size_t end = directory_end(data, size), at, shift, total = 0, i, k;
  if (end == size) return no_bundle(message);
  *count = little2(data + end + 10);
  if (*count > KB_MOST_FILES) return kb_fail(message, KB_DAMAGED, "a bundle of %lu files, expected at most %d", (unsigned long)*count, KB_MOST_FILES);
  if (little4(data + end + 12) > end || little4(data + end + 16) > end - little4(data + end + 12)) return no_bundle(message);
  at = end - little4(data + end + 12);
  shift = at - little4(data + end + 16);
  for (i = 0; i < *count; i++) {
    kb_status status = entry(data, end, shift, &at, front, files + i, message);
    if (status != KB_OK) return status;
    total += files[i].content.size;
    for (k = 0; k < i; k++)
      if (kb_same(files[i].name, files[k].name)) return no_bundle(message);
  }
  return total > KB_MOST_BUNDLE ? kb_fail(message, KB_DAMAGED, "a bundle of %lu bytes is too large", (unsigned long)total) : KB_OK;
}

/* ---- settings ---- */

static kb_text string_of(const kb_json *json, uint32_t object, const char *name) {
  static const kb_text none = {"", 0};
  uint32_t node = kb_json_get(json, object, name);
  return node && json->nodes[node].type == KB_STRING ? json->nodes[node].text : none;
}

static kb_status find_kind(kb_model *m, const kb_json *json, kb_message *message) {
  kb_text name = string_of(json, 0, "kind");
  const kb_kind *kind = kb_kinds;
  if (kb_is(name, "embedding")) name = kb_literal("vector");
  while (kind->name != NULL && !kb_is(name, kind->name)) kind++;
  m->kind = kind;
  if (kb_json_get(json, 0, "plugin")) return kb_fail(message, KB_UNSUPPORTED, "a file whose kind or inputs a plug-in brings");
  return kind->name ? KB_OK : kb_fail(message, KB_UNSUPPORTED, "a file that answers with '%s'", kb_show(name).text);
}

/* Strings of a list, copied. */
static kb_status read_labels(kb_model *m, const kb_json *json, kb_message *message) {
  uint32_t node = kb_json_get(json, 0, "labels"), at;
  size_t i, bytes = 1, used = 0;
  if (node == 0 || json->nodes[node].type != KB_LIST || json->nodes[node].count > KB_MOST_LENGTH)
    return kb_fail(message, KB_DAMAGED, "the bundle's labels are no list");
  m->label_count = json->nodes[node].count;
  if ((m->label_count > 0) != m->kind->labelled)
    return kb_fail(message, KB_DAMAGED, "%lu labels of a %s", (unsigned long)m->label_count, m->kind->name);
  for (i = 0, at = node + 1; i < m->label_count; i++, at = json->nodes[at].next) {
    if (json->nodes[at].type != KB_STRING || json->nodes[at].text.size == 0) return kb_fail(message, KB_DAMAGED, "a label is no string");
    bytes += json->nodes[at].text.size;
  }
  m->labels = calloc(m->label_count + 1, sizeof *m->labels);
  m->label_blob = malloc(bytes);
  if (m->labels == NULL || m->label_blob == NULL) return kb_no_memory(message);
  for (i = 0, at = node + 1; i < m->label_count; i++, at = json->nodes[at].next) {
    kb_text label = json->nodes[at].text;
    memcpy(m->label_blob + used, label.data, label.size);
    m->labels[i].data = m->label_blob + used, m->labels[i].size = label.size;
    used += label.size;
  }
  return KB_OK;
}

/* The longest row, of the signatures' lengths. */
static kb_status read_lengths(kb_model *m, const kb_json *json, kb_message *message) {
  uint32_t node = kb_json_get(json, 0, "signatures"), at = node + 1, i;
  if (node == 0 || json->nodes[node].type != KB_LIST) return kb_fail(message, KB_DAMAGED, "the bundle has no list of signatures");
  for (i = 0; i < json->nodes[node].count; i++) {
    long length = 0;
    uint32_t lengths = kb_json_get(json, at, "lengths"), each = lengths ? kb_json_get(json, lengths, "S") : 0;
    kb_text role = string_of(json, at, "role");
    if (!kb_is(role, "answer")) return kb_fail(message, KB_UNSUPPORTED, "a file with a signature of the role '%s'", kb_show(role).text);
    if (each == 0 || !kb_json_integer(json, each, &length, 1, KB_MOST_LENGTH)) return kb_fail(message, KB_DAMAGED, "a signature's length is not 1 to %d", KB_MOST_LENGTH);
    if ((size_t)length > m->longest) m->longest = (size_t)length;
    at = json->nodes[at].next;
  }
  return m->longest ? KB_OK : kb_fail(message, KB_DAMAGED, "the bundle has no signatures");
}

/* What an input holds, and that rows have all that the network reads. */
static kb_status read_inputs(kb_model *m, const kb_json *json, kb_message *message) {
  uint32_t parts = kb_json_get(json, 0, "parts"), pair = kb_json_get(json, 0, "pair"), node = kb_json_get(json, 0, "inputs"), at, i;
  m->parts = pair && json->nodes[pair].type == KB_TRUE ? 2 : 1;
  if (parts && json->nodes[parts].type == KB_LIST && json->nodes[parts].count > 0) m->parts = json->nodes[parts].count;
  if (node == 0 || json->nodes[node].type != KB_LIST) return kb_fail(message, KB_DAMAGED, "the bundle has no list of inputs");
  for (i = 0, at = node + 1; i < json->nodes[node].count; i++, at = json->nodes[at].next) {
    kb_text by = string_of(json, at, "filled_by");
    if (by.size > 0 && !kb_is(by, "packing") && !kb_is(by, "kind"))
      return kb_fail(message, KB_UNSUPPORTED, "a file with the input '%s', filled by a %s", kb_show(string_of(json, at, "name")).text, kb_show(by).text);
  }
  return KB_OK;
}

/* Numbers of a list, or of a list of lists with `width` each. */
static kb_status read_table(kb_model *m, const kb_json *json, uint32_t node, size_t width, kb_message *message) {
  size_t rows = json->nodes[node].count, count = width ? rows * width : rows, i;
  uint32_t at = node + 1;
  if (json->nodes[node].type != KB_LIST || rows > KB_MOST_LENGTH + 2) return kb_fail(message, KB_DAMAGED, "an option is no list of numbers");
  if (count > json->count) return kb_fail(message, KB_DAMAGED, "an option is no table of %lu columns", (unsigned long)width);
  m->table = calloc(count + 1, sizeof *m->table);
  if (m->table == NULL) return kb_no_memory(message);
  for (i = 0; i < count; i++, at++) {
    if (width && i % width == 0 && (json->nodes[at].type != KB_LIST || json->nodes[at++].count != width))
      return kb_fail(message, KB_DAMAGED, "an option is no table of %lu columns", (unsigned long)width);
    if (at >= json->count || !kb_json_number(json, at, m->table + i)) return kb_fail(message, KB_DAMAGED, "an option is no list of numbers");
  }
  m->table_count = count;
  return KB_OK;
}

/* A string, copied behind those that are there. */
static kb_text kept(kb_model *m, kb_text text) {
  kb_text copy = {m->prompt + m->prompt_size, text.size};
  if (text.size > 0) memcpy(m->prompt + m->prompt_size, text.data, text.size);
  m->prompt_size += text.size;
  return copy;
}

/* The prompts of a file of vectors, by name. */
static kb_status read_prompts(kb_model *m, const kb_json *json, uint32_t options, kb_message *message) {
  uint32_t list = kb_json_get(json, options, "prompts"), at;
  size_t count, i, bytes = 1;
  kb_status status;
  if (list == 0 || strcmp(m->kind->name, "vector") != 0) return KB_OK;
  if (json->nodes[list].type != KB_OBJECT) return kb_fail(message, KB_DAMAGED, "the option prompts is no object");
  count = 2 * (size_t)json->nodes[list].count;
  for (i = 0, at = list + 1; i < count; i++, at = json->nodes[at].next) {
    if (json->nodes[at].type != KB_STRING) return kb_fail(message, KB_DAMAGED, "a prompt is no string");
    bytes += json->nodes[at].text.size;
  }
  m->prompt = malloc(bytes), m->prompts = calloc(count + 1, sizeof *m->prompts);
  if (m->prompt == NULL || m->prompts == NULL) return kb_no_memory(message);
  for (at = list + 1; m->prompt_count < count; at = json->nodes[at].next) m->prompts[m->prompt_count++] = kept(m, json->nodes[at].text);
  status = kb_model_prompt(m, string_of(json, options, "prompt_name"), &m->before, message);
  return status == KB_ARGUMENT ? KB_DAMAGED : status;
}

kb_status kb_model_prompt(const kb_model *m, kb_text name, kb_text *text, kb_message *message) {
  char known[160] = "";
  size_t i, used = 0;
  text->data = "", text->size = 0;
  if (strcmp(m->kind->name, "vector") != 0) return kb_fail(message, KB_ARGUMENT, "a prompt is named, and a %s has none", m->kind->name);
  if (name.size == 0) return KB_OK;
  for (i = 0; i < m->prompt_count; i += 2) {
    if (kb_same(m->prompts[i], name)) {
      *text = m->prompts[i + 1];
      return KB_OK;
    }
    if (m->prompts[i].size > 0 && used < sizeof known)
      used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", kb_show(m->prompts[i]).text);
  }
  return kb_fail(message, KB_ARGUMENT, "no prompt '%s': the file has %s", kb_show(name).text, used ? known : "none");
}

static kb_status read_options(kb_model *m, const kb_json *json, kb_message *message) {
  static const char *const names[] = {"stride", "question", "max_answer", "n_best", "top", "starts"};
  uint32_t options = kb_json_get(json, 0, "options"), node;
  int span = strcmp(m->kind->name, "span") == 0;
  long *numbers[6];
  size_t i;
  kb_status status = KB_OK;
  numbers[0] = &m->stride, numbers[1] = &m->question, numbers[2] = &m->max_answer, numbers[3] = &m->n_best, numbers[4] = &m->top;
  numbers[5] = &m->starts;
  m->stride = span ? 128 : 0, m->question = 64, m->max_answer = 30, m->n_best = 5, m->top = 5, m->starts = 0;
  if (options == 0) return KB_OK;
  for (i = 0; i < 6; i++) { /* a stride of tags and starts may be none */
    node = kb_json_get(json, options, names[i]);
    if (node && !kb_json_integer(json, node, numbers[i], (i == 0 && !span) || i == 5 ? 0 : 1, 1 << 20))
      return kb_fail(message, KB_DAMAGED, "the option %s is out of range", names[i]);
  }
  node = kb_json_get(json, options, "unanswerable"), m->unanswerable = node && json->nodes[node].type == KB_TRUE;
  node = kb_json_get(json, options, "context_first"), m->context_first = node && json->nodes[node].type == KB_TRUE;
  node = kb_json_get(json, options, "crf"), m->crf = node && json->nodes[node].type == KB_TRUE;
  node = kb_json_get(json, options, "null_threshold");
  if (node && !kb_json_number(json, node, &m->null_threshold)) return kb_fail(message, KB_DAMAGED, "the option null_threshold is no number");
  node = kb_json_get(json, options, m->crf ? "transitions" : "thresholds");
  if (node && json->nodes[node].count > 0) status = read_table(m, json, node, m->crf ? m->label_count : 0, message);
  if (status == KB_OK) status = read_prompts(m, json, options, message);
  if (status == KB_OK && m->crf && m->table_count != (m->label_count + 2) * m->label_count)
    status = kb_fail(message, KB_DAMAGED, "the table of the CRF does not fit %lu labels", (unsigned long)m->label_count);
  if (status == KB_OK && !m->crf && m->table_count && m->table_count != m->label_count)
    status = kb_fail(message, KB_DAMAGED, "%lu thresholds of %lu labels", (unsigned long)m->table_count, (unsigned long)m->label_count);
  return status;
}

KB_API kb_status kb_model_open(const void *data, size_t size, kb_model **model, kb_message *message) {
  kb_file files[KB_MOST_FILES];
  const kb_file *settings;
  size_t count = 0, front = size;
  kb_model *m;
  kb_json json;
  long format = 0;
  uint32_t node;
  kb_status status = unzip(data, size, files, &count, &front, message);
  *model = NULL;
  if (status != KB_OK) return status;
  settings = kb_file_find(files, count, "bundle.json");
  if (settings == NULL) return kb_fail(message, KB_DAMAGED, "the file carries no bundle.json");
  status = kb_json_open(&json, settings->content, "bundle.json", message);
  if (status != KB_OK) return status;
  node = kb_json_get(&json, 0, "format");
  m = calloc(1, sizeof *m);
  if (m == NULL) status = kb_no_memory(message);
  else if (node == 0 || !kb_json_integer(&json, node, &format, 3, 3)) status = kb_fail(message, KB_UNSUPPORTED, "a bundle of another format than 3");
  if (status == KB_OK) m->front = front, status = find_kind(m, &json, message);
  if (status == KB_OK) status = read_labels(m, &json, message);
  if (status == KB_OK && strcmp(m->kind->name, "generation") == 0) {
    status = kb_generation_read(m, &json, message);
  } else {
    if (status == KB_OK) status = read_lengths(m, &json, message);
    if (status == KB_OK) status = read_options(m, &json, message);
  }
  if (status == KB_OK) status = read_inputs(m, &json, message);
  if (status == KB_OK) status = kb_tokenizer_open(files, count, &m->tokenizer, message);
  if (status == KB_OK) {
    char *copy = malloc(settings->content.size + 1);
    if (copy == NULL) status = kb_no_memory(message);
    else m->settings.data = memcpy(copy, settings->content.data, settings->content.size), m->settings.size = settings->content.size;
  }
  kb_json_close(&json);
  if (status == KB_OK) *model = m;
  else kb_model_close(m);
  return status;
}

KB_API void kb_model_close(kb_model *m) {
  if (m == NULL) return;
  kb_tokenizer_close(m->tokenizer);
  free(m->labels);
  free(m->label_blob);
  free((void *)m->settings.data);
  free(m->table);
  free(m->prompt);
  free(m->prompts);
  kb_generation_close(m);
  free(m);
}

KB_API const kb_tokenizer *kb_model_tokenizer(const kb_model *model) { return model->tokenizer; }
KB_API const char *kb_model_kind(const kb_model *model) { return model->kind->name; }
KB_API size_t kb_model_longest(const kb_model *model) { return model->longest; }
KB_API size_t kb_model_labels(const kb_model *model) { return model->label_count; }
KB_API kb_text kb_model_settings(const kb_model *model) { return model->settings; }
