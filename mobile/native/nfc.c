/* NFC (Unicode Standard Annex 15). The rules are text/nfc.py's. */
#include "internal.h"

#define STABLE 0x300u /* below nothing changes */

/* Decomposes a character and what joins it onto work->scratch, runs of marks by their classes. */
static void take_apart(kb_work *w, const uint32_t *codes, size_t count) {
  size_t i, k;
  w->scratch.count = 0;
  for (i = 0; i < count; i++) {
    uint32_t parts[4];
    size_t size = kb_apart(codes[i], parts);
    for (k = 0; k < size; k++) {
      unsigned number = kb_class(parts[k]);
      size_t at = w->scratch.count;
      kb_push_code(&w->scratch, parts[k]);
      if (w->scratch.failed) return;
      for (; number > 0 && at > 0 && kb_class(w->scratch.data[at - 1]) > number; at--) w->scratch.data[at] = w->scratch.data[at - 1];
      w->scratch.data[at] = parts[k];
    }
  }
}

/* Composes work->scratch in place: each mark with the character before its run, unless one of its class or above is between. */
static void compose(kb_work *w) {
  uint32_t *data = w->scratch.data;
  size_t i, count = 0, starter = 0;
  int known = 0, last = -1; /* whether there is a character; the class of what is behind it */
  for (i = 0; i < w->scratch.count; i++) {
    const uint32_t code = data[i];
    int number = (int)kb_class(code);
    uint32_t made = known && last < number ? kb_together(data[starter], code) : 0;
    if (made != 0) {
      data[starter] = made;
      continue;
    }
    if (number == 0) starter = count, known = 1, last = -1;
    else last = number;
    data[count++] = code;
  }
  w->scratch.count = count;
}

kb_status kb_nfc_form(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, kb_message *message) {
  size_t at, end, i;
  (void)t;
  for (at = 0; at < count; at = end) {
    int same = 1;
    for (end = at + 1; end < count && kb_joins(codes[end]); end++) continue;
    if (end > at + 1 || codes[at] >= STABLE) {
      take_apart(w, codes + at, end - at);
      if (w->scratch.failed) return kb_no_memory(message);
      compose(w);
      same = w->scratch.count == end - at && memcmp(w->scratch.data, codes + at, (end - at) * sizeof *codes) == 0;
    }
    for (i = 0; i < (same ? end - at : w->scratch.count); i++) {
      kb_push_code(&w->form, same ? codes[at + i] : w->scratch.data[i]);
      kb_push_int(&w->form_starts, (int32_t)(same ? at + i : at));
      kb_push_int(&w->form_ends, (int32_t)(same ? at + i + 1 : end));
    }
  }
  return kb_work_failed(w) ? kb_no_memory(message) : KB_OK;
}

kb_status kb_nfc_plain(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                       kb_message *message) {
  size_t i, from = w->starts.count;
  kb_status status;
  for (i = 0; i < count && codes[i] < STABLE; i++) continue;
  if (i == count) return t->formed(t, w, codes, count, first, offsets, message);
  w->form.count = w->form_starts.count = w->form_ends.count = 0;
  status = t->form(t, w, codes, count, message);
  if (status == KB_OK) status = t->formed(t, w, w->form.data, w->form.count, first, offsets, message);
  if (status == KB_OK && offsets) kb_place(w, from, 0, 0);
  return status;
}
