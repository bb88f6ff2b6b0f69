/* SentencePiece's file (a protocol buffer) and its character map (a double array of darts-clone). As text/sentencepiece.py. */
#include <stdlib.h>

#include "unigram.h"

/* ---- protocol buffers ---- */

typedef struct field { uint32_t number; uint64_t value; kb_text bytes; } field; /* bytes: of wire types 1, 2, 5 */

static int varint(kb_text data, size_t *at, uint64_t *value) {
  unsigned shift = 0;
  *value = 0;
  while (*at < data.size && shift < 64) {
    uint8_t byte = (uint8_t)data.data[(*at)++];
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return 1;
    shift += 7;
  }
  return 0;
}

/* The field at *at -> whether it is whole. */
static int next_field(kb_text data, size_t *at, field *found) {
  uint64_t key, size = 0;
  memset(found, 0, sizeof *found);
  if (!varint(data, at, &key) || key >> 3 > 0xffffffffu) return 0;
  found->number = (uint32_t)(key >> 3);
  switch (key & 7) {
    case 0: return varint(data, at, &found->value);
    case 1: size = 8; break;
    case 2: if (!varint(data, at, &size)) return 0; break;
    case 5: size = 4; break;
    default: return 0;
  }
  if (size > data.size - *at) return 0;
  found->bytes.data = data.data + *at, found->bytes.size = (size_t)size;
  *at += (size_t)size;
  return 1;
}

static uint32_t little(const char *bytes) {
  const unsigned char *b = (const unsigned char *)bytes;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int float_of(kb_text bytes, double *score) {
  uint32_t bits;
  float value;
  if (bytes.size != 4) return 0;
  bits = little(bytes.data);
  memcpy(&value, &bits, sizeof value);
  *score = (double)value;
  return 1;
}

/* ---- the character map ---- */

/* Distance (exclusive or) from a unit to its children. */
static uint32_t relative(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

/* The node after one more code point, NO_NODE where no rule begins like this; *leaf: whether one ends here. */
static uint32_t map_step(const struct kb_unigram *u, uint32_t node, uint32_t code, int *leaf) {
  uint8_t bytes[4];
  size_t i, size = kb_utf8(code, bytes);
  uint32_t unit = 0;
  *leaf = 0;
  if (node == NO_NODE) return NO_NODE;
  for (i = 0; i < size; i++) {
    node ^= bytes[i];
    if (node >= u->unit_count || (u->units[node] & 0x800000FFu) != bytes[i]) return NO_NODE;
    unit = u->units[node];
    node ^= relative(unit);
  }
  *leaf = (unit & 0x100) != 0;
  return node;
}

/* The string at the node below a leaf; 0: the map is damaged. */
static int map_value(const struct kb_unigram *u, uint32_t node, kb_text *value) {
  uint32_t position;
  if (node >= u->unit_count) return 0;
  position = u->units[node] & 0x7FFFFFFFu;
  if (position >= u->values_size) return 0;
  value->data = u->values + position;
  value->size = strlen(value->data); /* the values end with a zero */
  return kb_valid(*value);
}

size_t kb_map_longest(const struct kb_unigram *u, const uint32_t *codes, size_t at, size_t count, kb_text *value, int *found) {
  uint32_t node = u->root, end_node = NO_NODE;
  size_t i = at, read = 1;
  *found = 0;
  while (node != NO_NODE && i < count) {
    int leaf;
    node = map_step(u, node, codes[i++], &leaf);
    if (leaf) *found = 1, read = i - at, end_node = node;
  }
  if (*found && !map_value(u, end_node, value)) return 0;
  return read;
}

static kb_status map_open(struct kb_unigram *u, kb_text map, kb_message *message) {
  size_t i, size = map.size >= 4 ? little(map.data) : 0;
  uint32_t code;
  u->root = NO_NODE;
  if (map.size > 0) {
    if (size % 4 || size == 0 || size > map.size - 4 || (map.size > 4 + size && map.data[map.size - 1] != 0))
      return kb_fail(message, KB_DAMAGED, "the character map of the SentencePiece model is cut off or changed");
    u->unit_count = size / 4, u->values_size = map.size - 4 - size;
    u->units = malloc(size);
    u->values = malloc(u->values_size + 1);
    if (u->units == NULL || u->values == NULL) return kb_no_memory(message);
    for (i = 0; i < u->unit_count; i++) u->units[i] = little(map.data + 4 + 4 * i);
    memcpy(u->values, map.data + 4 + size, u->values_size);
    u->values[u->values_size] = 0;
    u->root = relative(u->units[0]);
  }
  for (code = 0; code < 128; code++) {
    int leaf;
    uint32_t other, node = map_step(u, u->root, code, &leaf);
    kb_text value;
    int itself = !leaf || (map_value(u, node, &value) && value.size == 1 && (uint8_t)value.data[0] == code);
    u->plain[code] = !itself ? PART : code == ' ' ? BLANK : PLAIN;
    for (other = 0; other < 128 && node != NO_NODE; other++)
      if (map_step(u, node, other, &leaf) != NO_NODE) u->plain[code] = PART;
  }
  return KB_OK;
}

/* ---- the file ---- */

/* One piece: its text, score and type. */
static int read_piece(kb_text data, kb_text *piece, double *score, uint64_t *type) {
  size_t at = 0;
  field f;
  int there = 0;
  *score = 0, *type = NORMAL;
  while (at < data.size) {
    if (!next_field(data, &at, &f)) return 0;
    if (f.number == 1) *piece = f.bytes, there = f.bytes.data != NULL;
    if (f.number == 2 && !float_of(f.bytes, score)) return 0;
    if (f.number == 3) *type = f.value;
  }
  return there && piece->size > 0 && kb_valid(*piece) && *type >= NORMAL && *type <= BYTE && *score > -1e9 && *score < 1e9;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

int kb_piece_byte(kb_text p) {
  if (p.size != 6 || memcmp(p.data, "<0x", 3) != 0 || hex(p.data[3]) < 0 || hex(p.data[4]) < 0) return -1;
  return hex(p.data[3]) * 16 + hex(p.data[4]);
}

/* The settings of the trainer and of the normaliser. */
static kb_status read_specs(struct kb_unigram *u, kb_text trainer, kb_text normalizer, kb_message *message) {
  uint64_t kind = 1, suffix = 0;
  size_t at = 0;
  field f;
  kb_text map = {NULL, 0};
  u->dummy_prefix = u->remove_extra = u->escape = 1;
  while (at < trainer.size) {
    if (!next_field(trainer, &at, &f)) return kb_fail(message, KB_DAMAGED, "not a SentencePiece model");
    if (f.number == 3) kind = f.value;
    if (f.number == 24) suffix = f.value;
    if (f.number == 35) u->byte_fallback = f.value != 0;
  }
  for (at = 0; at < normalizer.size;) {
    if (!next_field(normalizer, &at, &f)) return kb_fail(message, KB_DAMAGED, "not a SentencePiece model");
    if (f.number == 2) map = f.bytes;
    if (f.number == 3) u->dummy_prefix = f.value != 0;
    if (f.number == 4) u->remove_extra = f.value != 0;
    if (f.number == 5) u->escape = f.value != 0;
  }
  if (kind != 1 || suffix) return kb_fail(message, KB_UNSUPPORTED, "a SentencePiece model that is not unigram with blanks before words");
  return map_open(u, map, message);
}

kb_status kb_unigram_pieces(kb_tokenizer *t, kb_text model, kb_message *message) {
  struct kb_unigram *u = calloc(1, sizeof *u);
  kb_text trainer = {NULL, 0}, normalizer = {NULL, 0}, piece;
  kb_bytes blob;
  size_t at = 0, count = 0, used = 0, i = 0;
  uint64_t type;
  double score;
  field f;
  memset(&blob, 0, sizeof blob);
  t->unigram = u;
  if (u == NULL) return kb_no_memory(message);
  while (at < model.size) {
    if (!next_field(model, &at, &f)) return kb_fail(message, KB_DAMAGED, "not a SentencePiece model");
    if (f.number == 1) count++, used += f.bytes.size;
    if (f.number == 2) trainer = f.bytes;
    if (f.number == 3) normalizer = f.bytes;
  }
  if (count == 0 || count > KB_MOST_PIECES) return kb_fail(message, KB_DAMAGED, "a SentencePiece model of %lu pieces", (unsigned long)count);
  t->size = count;
  t->pieces = calloc(count, sizeof *t->pieces);
  t->blob = malloc(used + 1);
  u->scores = calloc(count, sizeof *u->scores);
  u->types = calloc(count, 1);
  if (t->pieces == NULL || t->blob == NULL || u->scores == NULL || u->types == NULL) return kb_no_memory(message);
  for (at = 0, used = 0; at < model.size && next_field(model, &at, &f);) {
    if (f.number != 1) continue;
    if (!read_piece(f.bytes, &piece, &score, &type) || (type == BYTE && kb_piece_byte(piece) < 0))
      return kb_fail(message, KB_DAMAGED, "piece %lu of the SentencePiece model is damaged", (unsigned long)i);
    memcpy(t->blob + used, piece.data, piece.size);
    t->pieces[i].data = t->blob + used, t->pieces[i].size = piece.size;
    used += piece.size;
    u->scores[i] = score, u->types[i++] = (uint8_t)type;
  }
  return read_specs(u, trainer, normalizer, message);
}
