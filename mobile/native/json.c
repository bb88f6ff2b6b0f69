/* A reader of json: one array of values in the order of the file, no recursion. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

typedef struct reader {
  kb_json *json;
  const char *s;
  size_t at, size;
  uint32_t open[KB_MOST_DEPTH]; /* lists and objects that are not closed */
  size_t depth;
} reader;

static void skip(reader *r) {
  while (r->at < r->size && (r->s[r->at] == ' ' || r->s[r->at] == '\t' || r->s[r->at] == '\n' || r->s[r->at] == '\r')) r->at++;
}

/* A new value; NULL where there is no memory or too many. */
static kb_json_node *add(reader *r, kb_json_type type) {
  kb_json_node *node;
  if (r->json->count >= 0xfffffff0u) return NULL;
  if (!kb_reserve((void **)&r->json->nodes, &r->json->room, r->json->count + 1, sizeof *node)) return NULL;
  node = r->json->nodes + r->json->count++;
  memset(node, 0, sizeof *node);
  node->type = type;
  node->next = (uint32_t)r->json->count;
  return node;
}

static int hex4(reader *r, uint32_t *value) {
  int i;
  *value = 0;
  for (i = 0; i < 4; i++, r->at++) {
    char c = r->at < r->size ? r->s[r->at] : 0;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return 0;
    *value = *value << 4 | (uint32_t)digit;
  }
  return 1;
}

/* The character after a backslash, onto `strings`. */
static int escape(reader *r) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  char c = r->at < r->size ? r->s[r->at++] : 0;
  const char *found = c ? strchr(names, c) : NULL;
  uint32_t code, low;
  if (found != NULL) return kb_push_byte(&r->json->strings, (uint8_t)values[found - names]), 1;
  if (c != 'u' || !hex4(r, &code)) return 0;
  if (code >= 0xD800 && code < 0xDC00) {
    if (r->at + 1 >= r->size || r->s[r->at] != '\\' || r->s[r->at + 1] != 'u') return 0;
    r->at += 2;
    if (!hex4(r, &low) || low < 0xDC00 || low > 0xDFFF) return 0;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    return 0;
  }
  kb_push_utf8(&r->json->strings, code);
  return 1;
}

static int string(reader *r, kb_text *text) {
  size_t begin = ++r->at, kept;
  while (r->at < r->size && r->s[r->at] != '"' && r->s[r->at] != '\\' && (unsigned char)r->s[r->at] >= 32) r->at++;
  if (r->at < r->size && r->s[r->at] == '"') {
    text->data = r->s + begin, text->size = r->at++ - begin;
    return 1;
  }
  kept = r->json->strings.count; /* `strings` has room for the file: what it holds stays where it is */
  kb_push_bytes(&r->json->strings, r->s + begin, r->at - begin);
  while (r->at < r->size && r->s[r->at] != '"') {
    unsigned char c = (unsigned char)r->s[r->at++];
    if (c < 32 || (c == '\\' && !escape(r))) return 0;
    if (c != '\\') kb_push_byte(&r->json->strings, c);
  }
  if (r->at++ >= r->size) return 0;
  text->data = (const char *)r->json->strings.data + kept, text->size = r->json->strings.count - kept;
  return 1;
}

static size_t digits(reader *r) {
  size_t begin = r->at;
  while (r->at < r->size && r->s[r->at] >= '0' && r->s[r->at] <= '9') r->at++;
  return r->at - begin;
}

static int number(reader *r, kb_text *text) {
  size_t begin = r->at, whole;
  if (r->s[r->at] == '-') r->at++;
  whole = digits(r);
  if (whole == 0 || (whole > 1 && r->s[r->at - whole] == '0')) return 0;
  if (r->at < r->size && r->s[r->at] == '.') {
    r->at++;
    if (digits(r) == 0) return 0;
  }
  if (r->at < r->size && (r->s[r->at] == 'e' || r->s[r->at] == 'E')) {
    r->at++;
    if (r->at < r->size && (r->s[r->at] == '+' || r->s[r->at] == '-')) r->at++;
    if (digits(r) == 0) return 0;
  }
  text->data = r->s + begin, text->size = r->at - begin;
  return text->size <= 400;
}

static int word(reader *r, const char *text) {
  size_t size = strlen(text);
  if (r->size - r->at < size || memcmp(r->s + r->at, text, size) != 0) return 0;
  r->at += size;
  return 1;
}

/* A value; of a list or an object its beginning. 1: a whole value, 2: an open one, 0: damaged, -1: no memory. */
static int value(reader *r) {
  char c;
  kb_json_node *node;
  skip(r);
  c = r->at < r->size ? r->s[r->at] : 0;
  node = add(r, c == '{' ? KB_OBJECT : c == '[' ? KB_LIST : c == '"' ? KB_STRING : c == 't' ? KB_TRUE : c == 'f' ? KB_FALSE
                : c == 'n' ? KB_NULL : KB_NUMBER);
  if (node == NULL) return -1;
  switch (node->type) {
    case KB_OBJECT:
    case KB_LIST:
      if (r->depth == KB_MOST_DEPTH) return 0;
      r->open[r->depth++] = (uint32_t)(r->json->count - 1);
      r->at++;
      return 2;
    case KB_STRING: return string(r, &node->text);
    case KB_TRUE: return word(r, "true");
    case KB_FALSE: return word(r, "false");
    case KB_NULL: return word(r, "null");
    default: return (c == '-' || (c >= '0' && c <= '9')) && number(r, &node->text);
  }
}

/* The key of a pair and its colon. As `value`. */
static int key(reader *r) {
  kb_json_node *node;
  skip(r);
  if (r->at >= r->size || r->s[r->at] != '"') return 0;
  node = add(r, KB_STRING);
  if (node == NULL) return -1;
  if (!string(r, &node->text)) return 0;
  skip(r);
  if (r->at >= r->size || r->s[r->at++] != ':') return 0;
  return 1;
}

/* All of it. As `value`. */
static int parse(reader *r) {
  int got = value(r), fresh = got == 2; /* fresh: nothing stands in the innermost list or object yet */
  while (got > 0 && r->depth > 0) {
    kb_json_node *open = r->json->nodes + r->open[r->depth - 1];
    char end = open->type == KB_OBJECT ? '}' : ']';
    skip(r);
    if (r->at >= r->size) return 0;
    if (r->s[r->at] == end) {
      r->at++;
      open->next = (uint32_t)r->json->count;
      r->depth--;
      fresh = 0;
      continue;
    }
    if (!fresh && r->s[r->at++] != ',') return 0;
    open->count++;
    if (end == '}') {
      got = key(r);
      if (got <= 0) return got;
    }
    got = value(r);
    fresh = got == 2;
  }
  skip(r);
  return got > 0 && r->at < r->size ? 0 : got;
}

kb_status kb_json_open(kb_json *json, kb_text text, const char *name, kb_message *message) {
  reader r;
  int got;
  memset(json, 0, sizeof *json);
  memset(&r, 0, sizeof r);
  r.json = json, r.s = text.data, r.size = text.size;
  if (!kb_reserve((void **)&json->strings.data, &json->strings.room, text.size + 4, 1)) return kb_no_memory(message);
  got = kb_valid(text) ? parse(&r) : 0;
  if (got > 0) return KB_OK;
  kb_json_close(json);
  if (got < 0) return kb_no_memory(message);
  return kb_fail(message, KB_DAMAGED, "%s is not json from byte %lu on", name, (unsigned long)r.at);
}

void kb_json_close(kb_json *json) {
  free(json->nodes);
  free(json->strings.data);
  memset(json, 0, sizeof *json);
}

uint32_t kb_json_get(const kb_json *json, uint32_t object, const char *key) {
  uint32_t i, at = object + 1, found = 0;
  if (json->nodes[object].type != KB_OBJECT) return 0;
  for (i = 0; i < json->nodes[object].count; i++) {
    if (kb_is(json->nodes[at].text, key)) found = at + 1;
    at = json->nodes[at + 1].next;
  }
  return found;
}

int kb_json_number(const kb_json *json, uint32_t node, double *number) {
  kb_text text = json->nodes[node].text;
  char copy[408], point[8], *end;
  size_t i;
  if (json->nodes[node].type != KB_NUMBER || text.size >= sizeof copy) return 0;
  snprintf(point, sizeof point, "%.1f", 0.5); /* the locale's decimal point, which strtod expects */
  for (i = 0; i < text.size; i++) copy[i] = text.data[i] == '.' ? point[1] : text.data[i];
  copy[text.size] = 0;
  *number = strtod(copy, &end);
  return *end == 0 && *number - *number == 0;
}

int kb_json_integer(const kb_json *json, uint32_t node, long *number, long least, long most) {
  kb_text text = json->nodes[node].text;
  char copy[24], *end;
  if (json->nodes[node].type != KB_NUMBER || text.size >= sizeof copy) return 0;
  memcpy(copy, text.data, text.size);
  copy[text.size] = 0;
  errno = 0;
  *number = strtol(copy, &end, 10);
  return *end == 0 && errno == 0 && *number >= least && *number <= most;
}
