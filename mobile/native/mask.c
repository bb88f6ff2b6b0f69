/* What stands behind the masks of a text. The rules are answers/tokens.py's. */
#include <stdlib.h>

#include "answers.h"

/* Whether a mask's spelling stands at rows->text[at]; its code points, 0 without. */
static size_t mask_at(const kb_rows *rows, size_t at) {
  const kb_tokenizer *t = rows->model->tokenizer;
  kb_text spellings[3];
  size_t i, k;
  spellings[0] = t->pieces[t->parts[KB_MASK]], spellings[1] = kb_literal("[MASK]"), spellings[2] = kb_literal("<mask>");
  for (i = 0; i < 3; i++) {
    size_t read = at, used = 0;
    while (used < spellings[i].size && read < rows->text.count) {
      uint8_t bytes[4];
      size_t size = kb_utf8(rows->text.data[read], bytes);
      for (k = 0; k < size && used < spellings[i].size && (uint8_t)spellings[i].data[used] == bytes[k]; k++) used++;
      if (k < size) break;
      read++;
    }
    if (used == spellings[i].size && used > 0) return read - at;
  }
  return 0;
}

/* Ids of rows->text[begin .. end). */
static kb_status ids_of(kb_rows *rows, size_t begin, size_t end, kb_ints *ids, kb_message *message) {
  kb_bytes piece;
  kb_text text;
  size_t i;
  kb_status status;
  memset(&piece, 0, sizeof piece);
  for (i = begin; i < end; i++) kb_push_utf8(&piece, rows->text.data[i]);
  text.data = (const char *)piece.data, text.size = piece.count;
  status = piece.failed ? kb_no_memory(message) : kb_encode(rows->model->tokenizer, text, &rows->work->view, message);
  for (i = 0; i < rows->work->view.count && status == KB_OK; i++) kb_push_int(ids, rows->work->view.ids[i]);
  free(piece.data);
  return status;
}

/* Ids of the whole text with a mask token for each mask -> `ids`, and the places of those. A mask token takes in the blanks
   before it. */
static kb_status read_text(kb_rows *rows, kb_ints *ids, kb_ints *places, kb_message *message) {
  size_t at = 0, done = 0, end;
  kb_status status = KB_OK;
  while (at < rows->text.count && status == KB_OK) {
    size_t size = mask_at(rows, at);
    if (size == 0) {
      at++;
      continue;
    }
    for (end = at; end > done && kb_is_blank(rows->text.data[end - 1]);) end--;
    status = ids_of(rows, done, end, ids, message);
    kb_push_int(places, (int32_t)ids->count);
    kb_push_int(ids, rows->model->tokenizer->parts[KB_MASK]);
    kb_push_int(&rows->masks, (int32_t)at);
    kb_push_int(&rows->masks, (int32_t)(at + size));
    at = done = at + size;
  }
  return status == KB_OK ? ids_of(rows, done, rows->text.count, ids, message) : status;
}

kb_status kb_mask_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  const kb_tokenizer *t = rows->model->tokenizer;
  size_t i, specials = t->single_count - 1, budget, lead = 0;
  kb_ints ids, places;
  kb_status status;
  (void)words;
  memset(&ids, 0, sizeof ids);
  memset(&places, 0, sizeof places);
  if (count != 1) return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected one", (unsigned long)count);
  if (t->parts[KB_MASK] < 0) return kb_fail(message, KB_ARGUMENT, "the tokenizer has no mask token, expected one");
  if (rows->model->longest <= specials) return kb_fail(message, KB_ARGUMENT, "length is %lu, expected at least %lu", (unsigned long)rows->model->longest, (unsigned long)specials + 1);
  if (!kb_decode(texts[0], &rows->text)) return kb_no_memory(message);
  budget = rows->model->longest - specials;
  while (t->single[lead].text == 0) lead++;
  status = read_text(rows, &ids, &places, message);
  if (status == KB_OK && places.count == 0)
    status = kb_fail(message, KB_ARGUMENT, "'%s' has no mask, expected %s where a token is to be filled in", kb_show(texts[0]).text,
                     kb_show(t->pieces[t->parts[KB_MASK]]).text);
  if (ids.failed || places.failed || rows->masks.failed) status = kb_no_memory(message);
  for (i = 0; i < places.count && status == KB_OK; i++) {
    size_t place = (size_t)places.data[i], start = place > budget / 2 ? place - budget / 2 : 0, kept;
    kb_packed *row;
    if (ids.count < budget) start = 0;
    else if (start > ids.count - budget) start = ids.count - budget;
    kept = ids.count - start < budget ? ids.count - start : budget;
    row = kb_row_add(rows, ids.data + start, kept, NULL, 0, 0, NULL);
    if (row == NULL) status = kb_no_memory(message);
    else row->truncated = kept < ids.count, row->position = (int32_t)(lead + place - start);
  }
  free(ids.data);
  free(places.data);
  return status;
}

/* ---- tokens as text ---- */

/* The byte that a code point of a byte-level piece stands for; -1 of others. */
static int byte_of(uint32_t code) {
  uint32_t alphabet[256];
  int i;
  kb_byte_alphabet(alphabet);
  for (i = 0; i < 256; i++)
    if (alphabet[i] == code) return i;
  return -1;
}

/* A token as text, as UTF-8 -> rows->work->word, and valid -> rows->work->scratch. */
static void spell(kb_rows *rows, int32_t id) {
  const kb_tokenizer *t = rows->model->tokenizer;
  kb_text piece = t->pieces[id], bytes;
  kb_bytes *out = &rows->work->word;
  kb_codes *codes = &rows->work->scratch;
  size_t i;
  out->count = 0;
  if (t->special[id] || t->lengths == NULL) {
    int plain = t->special[id] || t->unigram == NULL;
    if (!plain && kb_unigram_is_byte(t, id)) {
      for (i = 0; i < 256; i++)
        if (t->bytes[i] == id) kb_push_byte(out, (uint8_t)i);
    } else {
      for (i = 0; i < piece.size; i++) {
        if (!plain && i + 2 < piece.size && memcmp(piece.data + i, "\xE2\x96\x81", 3) == 0) kb_push_byte(out, ' '), i += 2;
        else kb_push_byte(out, (uint8_t)piece.data[i]);
      }
      if (!plain && out->count > 0 && out->data[0] == ' ') memmove(out->data, out->data + 1, --out->count);
    }
  } else if (t->is_added[id]) {
    kb_push_bytes(out, piece.data, piece.size);
  } else if (kb_decode(piece, codes)) {
    for (i = 0; i < codes->count; i++) {
      int byte = byte_of(codes->data[i]);
      if (byte >= 0) kb_push_byte(out, (uint8_t)byte);
      else kb_push_utf8(out, codes->data[i]);
    }
  }
  bytes.data = (const char *)out->data, bytes.size = out->count;
  kb_decode(bytes, codes);
}

/* Whether a piece continues a word. */
static int continues(const kb_tokenizer *t, int32_t id) {
  kb_text piece = t->pieces[id];
  kb_codes first;
  int byte;
  if (t->unigram == NULL && t->lengths == NULL) return piece.size >= 2 && memcmp(piece.data, "##", 2) == 0 && !t->is_added[id];
  if (t->special[id] || t->is_added[id]) return 0;
  if (t->unigram != NULL) return piece.size < 3 || memcmp(piece.data, "\xE2\x96\x81", 3) != 0;
  memset(&first, 0, sizeof first);
  byte = kb_decode(piece, &first) && first.count > 0 ? byte_of(first.data[0]) : -1;
  free(first.data);
  return !(byte >= 0 && kb_is_blank((uint32_t)byte));
}

/* The numbers of the best scores, best first, of equal ones the first. */
static size_t best_of(const float *scores, size_t count, size_t wanted, int32_t *best) {
  size_t i, at, found = 0;
  for (i = 0; i < count; i++) {
    if (found == wanted && !(scores[i] > scores[best[found - 1]])) continue;
    if (found < wanted) found++;
    for (at = found - 1; at > 0 && scores[i] > scores[best[at - 1]]; at--) best[at] = best[at - 1];
    best[at] = (int32_t)i;
  }
  return found;
}

/* The text with the best token of each mask in its place; the blanks before one go where the token continues a word. */
static void put_filled(kb_rows *rows, const int32_t *best, size_t wanted, kb_codes *filled) {
  const kb_tokenizer *t = rows->model->tokenizer;
  size_t i, k, done = 0;
  for (i = 0; i < rows->count; i++) {
    size_t begin = (size_t)rows->masks.data[2 * i], from = 0, to, end = begin;
    const kb_codes *token = &rows->work->scratch;
    int32_t id = best[i * wanted];
    while (end > done && continues(t, id) && kb_is_blank(rows->text.data[end - 1])) end--;
    for (k = done; k < end; k++) kb_push_code(filled, rows->text.data[k]);
    spell(rows, id);
    to = token->count;
    if (t->unigram == NULL && t->lengths == NULL) {
      if (to >= 2 && token->data[0] == '#' && token->data[1] == '#') from = 2;
    } else {
      while (from < to && token->data[from] == ' ') from++;
      while (to > from && token->data[to - 1] == ' ') to--;
    }
    for (k = from; k < to; k++) kb_push_code(filled, token->data[k]);
    done = (size_t)rows->masks.data[2 * i + 1];
  }
  for (k = done; k < rows->text.count; k++) kb_push_code(filled, rows->text.data[k]);
}

kb_status kb_mask_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  size_t vocabulary = rows->model->tokenizer->size, wanted = (size_t)rows->model->top, i, k;
  kb_bytes *json = &rows->json;
  kb_codes filled;
  int32_t *best;
  memset(&filled, 0, sizeof filled);
  for (i = 0; i < rows->count; i++)
    if (sizes[i] < vocabulary) return kb_fail(message, KB_ARGUMENT, "an output has %lu numbers, expected %lu", (unsigned long)sizes[i], (unsigned long)vocabulary);
  if (wanted > vocabulary) wanted = vocabulary;
  best = malloc(rows->count * wanted * sizeof *best + 1);
  if (best == NULL) return kb_no_memory(message);
  for (i = 0; i < rows->count; i++) best_of(outputs[i], vocabulary, wanted, best + i * wanted);
  put_filled(rows, best, wanted, &filled);
  kb_put(json, "{\"text\": ");
  kb_put_codes(json, filled.data, filled.count);
  kb_put(json, ", \"tokens\": [");
  for (i = 0; i < rows->count; i++) {
    kb_put(json, i ? ", [" : "[");
    for (k = 0; k < wanted; k++) {
      int32_t id = best[i * wanted + k];
      spell(rows, id);
      kb_put(json, k ? ", {\"token\": " : "{\"token\": ");
      kb_put_codes(json, rows->work->scratch.data, rows->work->scratch.count);
      kb_put(json, ", \"score\": ");
      kb_put_number(json, (double)outputs[i][id]);
      kb_put(json, ", \"id\": ");
      kb_put_number(json, id);
      kb_tell_label(rows, kb_tell_codes(rows, rows->work->scratch.data, rows->work->scratch.count), (double)outputs[i][id], id, k == 0);
      kb_put(json, "}");
    }
    kb_put(json, "]");
  }
  kb_put(json, "]");
  kb_put_truncated(json, rows);
  rows->told.view.text = kb_tell_codes(rows, filled.data, filled.count), rows->told.view.mask_count = rows->count;
  free(best);
  i = filled.failed || kb_work_failed(rows->work);
  free(filled.data);
  return i ? kb_no_memory(message) : KB_OK;
}
