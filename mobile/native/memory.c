/* Growable arrays, messages, a map of strings. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

int kb_reserve(void **data, size_t *room, size_t wanted, size_t size) {
  size_t grown = *room + *room / 2 + 16;
  void *moved;
  if (wanted <= *room) return 1;
  if (grown < wanted) grown = wanted;
  if (grown > SIZE_MAX / 2 / size) return 0;
  moved = realloc(*data, grown * size);
  if (moved == NULL) return 0;
  *data = moved;
  *room = grown;
  return 1;
}

void kb_push_bytes(kb_bytes *a, const void *data, size_t size) {
  if (size == 0) return;
  if (!kb_reserve((void **)&a->data, &a->room, a->count + size, 1)) {
    a->failed = 1;
    return;
  }
  memcpy(a->data + a->count, data, size);
  a->count += size;
}

int kb_ints_room(kb_ints *a, size_t wanted) {
  int there = kb_reserve((void **)&a->data, &a->room, wanted, sizeof *a->data);
  if (!there) a->failed = 1;
  return there;
}

int kb_codes_room(kb_codes *a, size_t wanted) {
  int there = kb_reserve((void **)&a->data, &a->room, wanted, sizeof *a->data);
  if (!there) a->failed = 1;
  return there;
}

kb_status kb_fail(kb_message *message, kb_status status, const char *format, ...) {
  va_list arguments;
  if (message == NULL) return status;
  va_start(arguments, format);
  vsnprintf(message->text, sizeof message->text, format, arguments);
  va_end(arguments);
  return status;
}

kb_status kb_no_memory(kb_message *message) { return kb_fail(message, KB_NO_MEMORY, "no memory is left"); }

kb_shown kb_show(kb_text text) {
  kb_shown shown;
  size_t i, size = text.size < 40 ? text.size : 40;
  int valid;
  while (size > 0 && size < text.size && ((unsigned char)text.data[size] & 0xC0) == 0x80) size--; /* whole characters */
  text.size = size, valid = kb_valid(text);
  for (i = 0; i < size; i++) {
    unsigned char c = (unsigned char)text.data[i];
    shown.text[i] = c < 32 || c == 127 || (c > 127 && !valid) ? '?' : text.data[i]; /* a message is UTF-8 whatever a file holds */
  }
  shown.text[size] = 0;
  return shown;
}

int kb_same(kb_text a, kb_text b) { return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0); }

int kb_is(kb_text text, const char *literal) { return kb_same(text, kb_literal(literal)); }

/* FNV-1a, mixed at the end. */
static uint64_t hash(kb_text key) {
  uint64_t value = 0xcbf29ce484222325u;
  size_t i;
  for (i = 0; i < key.size; i++) value = (value ^ (unsigned char)key.data[i]) * 0x100000001b3u;
  return value ^ value >> 29;
}

int kb_map_open(kb_map *map, size_t count) {
  size_t room = 16;
  while (room < count * 2) room *= 2;
  map->entries = calloc(room, sizeof *map->entries);
  map->room = map->entries == NULL ? 0 : room;
  map->count = 0;
  return map->entries != NULL;
}

/* The place of a key, or the free one where it belongs. */
static struct kb_entry *place(const kb_map *map, kb_text key) {
  size_t at = (size_t)hash(key) & (map->room - 1);
  while (map->entries[at].key.data != NULL && !kb_same(map->entries[at].key, key)) at = (at + 1) & (map->room - 1);
  return map->entries + at;
}

int32_t kb_map_find(const kb_map *map, kb_text key) {
  const struct kb_entry *entry = map->room == 0 ? NULL : place(map, key);
  return entry == NULL || entry->key.data == NULL ? -1 : entry->value;
}

int32_t kb_map_put(kb_map *map, kb_text key, int32_t value) {
  struct kb_entry *entry = place(map, key);
  if (entry->key.data != NULL) return entry->value;
  entry->key = key;
  if (key.data == NULL) entry->key.data = "";
  entry->value = value;
  map->count++;
  return -1;
}

void kb_map_close(kb_map *map) {
  free(map->entries);
  memset(map, 0, sizeof *map);
}

/* A hash of the files: tokenizers of one are the same. */
uint64_t kb_stamp(const kb_file *files, size_t count) {
  uint64_t value = 0xcbf29ce484222325u, part;
  size_t i, k;
  for (i = 0; i < count; i++) {
    for (k = 0; k + 8 <= files[i].content.size; k += 8) {
      memcpy(&part, files[i].content.data + k, 8);
      value = (value ^ part) * 0x9e3779b97f4a7c15u;
      value ^= value >> 32;
    }
    for (; k < files[i].content.size; k++) value = (value ^ (unsigned char)files[i].content.data[k]) * 0x100000001b3u;
    value = (value ^ files[i].content.size) * 0x100000001b3u;
  }
  return value;
}
