/* UTF-8 and what Unicode says of code points. */
#include "internal.h"
#include "tables.h"

/* Flags that internal.h repeats. */
typedef char flags_agree[KB_DROP == KB_F_DROP && KB_SPACE == KB_F_SPACE && KB_CJK == KB_F_CJK &&
                                 KB_PUNCTUATION == KB_F_PUNCTUATION && KB_MARKS == KB_F_MARK && KB_LETTERS == KB_F_LETTER &&
                                 KB_NUMBERS == KB_F_NUMBER && KB_BLANKS == KB_F_BLANK && KB_WORD == KB_F_WORD &&
                                 KB_LOWER == KB_F_LOWER && KB_STRIP == KB_F_STRIP && KB_CLASSES == KB_F_CLASS &&
                                 KB_MOVABLE == KB_F_MOVABLE
                             ? 1
                             : -1];

#define HANGUL_FIRST 0xAC00u
#define HANGUL_END 0xD7A4u
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

uint32_t kb_flags(uint32_t code) {
  if (code >= KB_CODES) return 0;
  return kb_flag_sets[kb_second[kb_first[code >> 7] * 128u + (code & 127)]];
}

/* The place of a key in a sorted table; `count` where it is not there. */
static size_t search(const uint32_t *keys, size_t count, uint32_t key) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low < count && keys[low] == key ? low : count;
}

uint32_t kb_lower(uint32_t code) {
  size_t at;
  if (!(kb_flags(code) & KB_LOWER)) return code;
  at = search(kb_lower_keys, COUNT(kb_lower_keys), code);
  return at < COUNT(kb_lower_keys) ? kb_lower_values[at] : code;
}

unsigned kb_class(uint32_t code) {
  size_t at;
  if (!(kb_flags(code) & KB_CLASSES)) return 0;
  at = search(kb_class_keys, COUNT(kb_class_keys), code);
  return at < COUNT(kb_class_keys) ? kb_class_values[at] : 0;
}

size_t kb_apart(uint32_t code, uint32_t *out) {
  size_t at, size;
  if (code >= HANGUL_FIRST && code < HANGUL_END) { /* Unicode, section 3.12 */
    uint32_t index = code - HANGUL_FIRST, last = index % 28;
    out[0] = 0x1100 + index / 588;
    out[1] = 0x1161 + index % 588 / 28;
    out[2] = 0x11A7 + last;
    return last ? 3 : 2;
  }
  at = code < 0xC0 ? COUNT(kb_apart_keys) : search(kb_apart_keys, COUNT(kb_apart_keys), code);
  if (at == COUNT(kb_apart_keys)) return out[0] = code, 1;
  size = kb_apart(kb_apart_firsts[at], out);
  if (kb_apart_seconds[at] != 0) out[size++] = kb_apart_seconds[at];
  return size;
}

size_t kb_strip(uint32_t code, uint32_t *out) {
  size_t i, count = 0, size;
  if (!(kb_flags(code) & KB_STRIP) && !(code >= HANGUL_FIRST && code < HANGUL_END)) return out[0] = code, 1;
  size = kb_apart(code, out);
  for (i = 0; i < size; i++)
    if (!(kb_flags(out[i]) & KB_MARKS)) out[count++] = out[i];
  return count;
}

uint32_t kb_together(uint32_t first, uint32_t second) {
  size_t low = 0, high = COUNT(kb_pairs);
  if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176)
    return HANGUL_FIRST + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
  if (first >= HANGUL_FIRST && first < HANGUL_END && (first - HANGUL_FIRST) % 28 == 0 && second > 0x11A7 && second < 0x11C3)
    return first + (second - 0x11A7);
  while (low < high) {
    size_t middle = low + (high - low) / 2, at = kb_pairs[middle];
    if (kb_apart_firsts[at] == first && kb_apart_seconds[at] == second) return kb_apart_keys[at];
    if (kb_apart_firsts[at] < first || (kb_apart_firsts[at] == first && kb_apart_seconds[at] < second)) low = middle + 1;
    else high = middle;
  }
  return 0;
}

int kb_joins(uint32_t code) {
  return code >= 0x300 && (kb_class(code) != 0 || search(kb_join_keys, COUNT(kb_join_keys), code) < COUNT(kb_join_keys));
}

/* The code point at the beginning of some bytes and how many it takes. 0: not UTF-8, and *size bytes are one invalid part. */
static int decode_one(const unsigned char *s, size_t left, uint32_t *code, size_t *size) {
  unsigned char lead = s[0], low = 0x80, high = 0xBF;
  size_t more, i;
  if (lead < 0x80) return *code = lead, *size = 1, 1;
  *size = 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  *code = lead & (0x3F >> more);
  for (i = 1; i <= more; i++) {
    if (i >= left || s[i] < low || s[i] > high) return 0;
    *code = *code << 6 | (s[i] & 0x3F);
    *size = i + 1;
    low = 0x80, high = 0xBF;
  }
  return 1;
}

int kb_decode(kb_text text, kb_codes *codes) {
  const unsigned char *s = (const unsigned char *)text.data;
  size_t at = 0, count = 0;
  uint32_t *out;
  codes->count = 0;
  if (!kb_codes_room(codes, text.size)) return 0;
  out = codes->data;
  while (at < text.size) {
    uint32_t code;
    size_t size;
    if (s[at] < 0x80) {
      out[count++] = s[at++];
      continue;
    }
    out[count++] = decode_one(s + at, text.size - at, &code, &size) ? code : 0xFFFD;
    at += size;
  }
  codes->count = count;
  return 1;
}

void kb_code_starts(kb_text text, size_t from, kb_ints *starts) {
  size_t at = 0, size;
  uint32_t code;
  for (; at < text.size; at += size) {
    kb_push_int(starts, (int32_t)(from + at));
    decode_one((const unsigned char *)text.data + at, text.size - at, &code, &size);
  }
}

int kb_valid(kb_text text) {
  size_t at = 0, size;
  uint32_t code;
  for (; at < text.size; at += size)
    if (!decode_one((const unsigned char *)text.data + at, text.size - at, &code, &size)) return 0;
  return 1;
}

size_t kb_utf8(uint32_t code, uint8_t *out) {
  if (code < 0x80) return out[0] = (uint8_t)code, 1;
  if (code < 0x800) {
    out[0] = (uint8_t)(0xC0 | code >> 6);
    out[1] = (uint8_t)(0x80 | (code & 0x3F));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (uint8_t)(0xE0 | code >> 12);
    out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    out[2] = (uint8_t)(0x80 | (code & 0x3F));
    return 3;
  }
  out[0] = (uint8_t)(0xF0 | code >> 18);
  out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
  out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
  out[3] = (uint8_t)(0x80 | (code & 0x3F));
  return 4;
}

void kb_push_utf8(kb_bytes *bytes, uint32_t code) {
  uint8_t out[4];
  size_t size = kb_utf8(code, out);
  if (size == 1) kb_push_byte(bytes, out[0]);
  else kb_push_bytes(bytes, out, size);
}
