/* One text, token after token: greedy, drawn, by beams. answers/beam_search.py in C. */
#include <math.h>
#include <stdlib.h>

#include "generate.h"

/* What a search needs beside its texts. */
typedef struct work {
  const kb_search *search;
  const kb_decoding *how;
  size_t most, width; /* tokens of a text; of the vocabulary */
  float *x;           /* of each text [width] */
  size_t x_room;
  uint8_t *marks;
  kb_ints seen;
  kb_sorting sorting;
  int32_t tokens[KB_MOST_BEAMS];
  size_t origin[KB_MOST_BEAMS];
} work;

void kb_written_free(kb_written *texts, size_t count) {
  size_t i;
  for (i = 0; texts != NULL && i < count; i++) free(texts[i].ids);
  free(texts);
}

static kb_written *new_texts(size_t count, size_t most) {
  kb_written *texts = calloc(count, sizeof *texts);
  size_t i;
  for (i = 0; texts != NULL && i < count; i++) {
    texts[i].ids = calloc(most, sizeof *texts[i].ids);
    if (texts[i].ids == NULL) {
      kb_written_free(texts, count);
      return NULL;
    }
  }
  return texts;
}

static kb_status not_finite(kb_message *message) {
  return kb_fail(message, KB_DAMAGED, "the network gives logits that are not finite: write the file again");
}

/* Asks for the logits of `count` texts and copies them into w->x, where they may be changed. */
static kb_status ask(work *w, size_t count, size_t step, const float **logits, kb_message *message) {
  const kb_search *s = w->search;
  size_t width = 0, i;
  kb_status status = s->step(s->context, w->tokens, w->origin, count, s->prompt_count - 1 + step, logits, &width, message);
  if (status != KB_OK) return status;
  if (w->marks == NULL) {
    long most = w->how->forced_bos > w->how->forced_eos ? w->how->forced_bos : w->how->forced_eos;
    if (width < (size_t)w->how->beams) return kb_fail(message, KB_ARGUMENT, "beams is %ld, expected at most the vocabulary's %lu tokens", w->how->beams, (unsigned long)width);
    for (i = 0; i < w->how->suppress.count + w->how->begin_suppress.count; i++) {
      int32_t id = i < w->how->suppress.count ? w->how->suppress.data[i] : w->how->begin_suppress.data[i - w->how->suppress.count];
      if (id > most) most = id;
    }
    if (most >= (long)width) return kb_fail(message, KB_ARGUMENT, "the forced or suppressed token %ld is none of the vocabulary's %lu tokens", most, (unsigned long)width);
    w->width = width, w->marks = calloc(width + 1, 1);
    if (w->marks == NULL) return kb_no_memory(message);
  }
  if (width != w->width || s->end < 0 || (size_t)s->end >= width) return kb_fail(message, KB_DAMAGED, "the network gives %lu logits: write the file again", (unsigned long)width);
  if (!kb_reserve((void **)&w->x, &w->x_room, count * width, sizeof *w->x)) return kb_no_memory(message);
  memcpy(w->x, *logits, count * width * sizeof *w->x);
  return KB_OK;
}

/* Penalties and bans of a text's logits or log-probabilities at w->x[number * width]. */
static kb_status adjust(work *w, size_t number, const kb_written *text, size_t step, kb_message *message) {
  size_t i;
  w->seen.count = 0;
  for (i = 0; i < w->search->prompt_count; i++) kb_push_int(&w->seen, w->search->prompt[i]);
  for (i = 0; i < text->count; i++) kb_push_int(&w->seen, text->ids[i]);
  if (w->seen.failed) return kb_no_memory(message);
  kb_adjust(w->how, w->x + number * w->width, w->width, &w->seen, step, w->search->end, w->marks);
  return KB_OK;
}

/* What is taken from logits for the logarithms of their probabilities. */
static void normalizer(const float *x, size_t width, float *largest, float *rest) {
  double total = 0;
  size_t i;
  *largest = x[kb_most(x, width)];
  for (i = 0; i < width; i++) total += (double)expf(x[i] - *largest);
  *rest = logf((float)total);
}

/* ---- texts that do not compete ---- */

static kb_status each(work *w, kb_written *texts, kb_message *message) {
  size_t count = (size_t)w->how->sequences, going = count, t, i, next;
  size_t of[KB_MOST_BEAMS]; /* of those that go on, which text each is */
  const float *logits = NULL;
  for (i = 0; i < count; i++) of[i] = i, w->origin[i] = 0, w->tokens[i] = w->search->prompt[w->search->prompt_count - 1];
  for (t = 0; t < w->most && going > 0; t++) {
    kb_status status = ask(w, going, t, &logits, message);
    for (i = 0; i < going && status == KB_OK; i++) {
      kb_written *text = texts + of[i];
      float largest, rest, *x = w->x + i * w->width;
      size_t token = 0;
      normalizer(logits + i * w->width, w->width, &largest, &rest);
      if (!(rest - rest == 0)) return not_finite(message);
      status = adjust(w, i, text, t, message);
      if (status != KB_OK) break;
      if (!w->how->draws) token = kb_most(x, w->width);
      else if (!kb_draw(w->how, x, w->width, of[i], t, &w->sorting, &token)) return kb_no_memory(message);
      text->score += logits[i * w->width + token] - largest - rest;
      text->ids[text->count++] = (int32_t)token;
      if (!(text->score - text->score == 0)) return not_finite(message);
      if (w->search->told != NULL) status = w->search->told(w->search->context, text, message);
    }
    if (status != KB_OK) return status;
    for (i = next = 0; i < going; i++) {
      const kb_written *text = texts + of[i];
      if (text->ids[text->count - 1] == w->search->end) continue;
      w->origin[next] = i, w->tokens[next] = text->ids[text->count - 1], of[next++] = of[i];
    }
    going = next;
  }
  return KB_OK;
}

/* ---- beams ---- */

/* A text and one more token -> `to`. */
static void longer(const kb_written *from, int32_t token, float score, kb_written *to) {
  memcpy(to->ids, from->ids, from->count * sizeof *to->ids);
  to->ids[from->count] = token, to->count = from->count + 1, to->score = score;
}

/* Puts a text among the finished ones, best first, of equal ones the earlier; at most `count` stay. */
static void finish(kb_written *ended, size_t *done, size_t count, const kb_written *from, int32_t token, float score) {
  size_t at = *done;
  kb_written free_one;
  while (at > 0 && ended[at - 1].score < score) at--;
  if (*done == count && at == count) return;
  free_one = ended[*done < count ? *done : count - 1];
  memmove(ended + at + 1, ended + at, ((*done < count ? *done : count - 1) - at) * sizeof *ended);
  ended[at] = free_one;
  longer(from, token, score, ended + at);
  *done += *done < count;
}

/* The log-probabilities of all beams and their texts, in place. */
static kb_status totals(work *w, const kb_written *running, size_t going, size_t step, kb_message *message) {
  size_t i, k;
  for (i = 0; i < going; i++) {
    float largest, rest, *x = w->x + i * w->width;
    kb_status status;
    normalizer(x, w->width, &largest, &rest);
    if (!(rest - rest == 0)) return not_finite(message);
    for (k = 0; k < w->width; k++) x[k] = x[k] - largest - rest;
    status = adjust(w, i, running + i, step, message);
    if (status != KB_OK) return status;
    for (k = 0; k < w->width; k++) x[k] += running[i].score;
  }
  return KB_OK;
}

/* Takes the best 2 * beams of w->x: into `next` what goes on, into `ended` what ends. */
static kb_status take(work *w, const kb_written *running, size_t going, size_t t, kb_written *next, size_t *kept, kb_written *ended, size_t *done,
                      kb_message *message) {
  size_t beams = (size_t)w->how->beams, all = going * w->width, best = 2 * beams < all ? 2 * beams : all, rank;
  float length = powf((float)(t + 1), (float)w->how->length_penalty);
  *kept = 0;
  if (!kb_largest(w->x, all, best, &w->sorting)) return kb_no_memory(message);
  for (rank = 0; rank < best; rank++) {
    kb_scored found = w->sorting.best[rank];
    size_t beam = found.at / w->width;
    int32_t token = (int32_t)(found.at % w->width);
    if (token != w->search->end && t + 1 < w->most) {
      if (*kept == beams) continue;
      w->origin[*kept] = beam, w->tokens[*kept] = token;
      longer(running + beam, token, found.x, next + (*kept)++);
    } else if (rank < beams) {
      finish(ended, done, beams, running + beam, token, found.x / length);
    }
  }
  return KB_OK;
}

static kb_status beams(work *w, kb_written *running, kb_written *next, kb_written *ended, kb_message *message) {
  const kb_decoding *how = w->how;
  size_t going = 1, kept = 0, done = 0, t, count = (size_t)how->beams;
  const float *logits = NULL;
  w->origin[0] = 0, w->tokens[0] = w->search->prompt[w->search->prompt_count - 1];
  for (t = 0; t < w->most; t++) {
    kb_written *last = running;
    float most = powf((float)(how->early == 2 && how->length_penalty > 0 ? w->most : t + 1), (float)how->length_penalty);
    kb_status status = ask(w, going, t, &logits, message);
    if (status == KB_OK) status = totals(w, running, going, t, message);
    if (status == KB_OK) status = take(w, running, going, t, next, &kept, ended, &done, message);
    if (status != KB_OK) return status;
    if (kept == 0 || (done == count && (how->early == 1 || next[0].score / most <= ended[done - 1].score))) break;
    running = next, next = last, going = kept;
  }
  return KB_OK;
}

kb_status kb_search_run(const kb_search *search, kb_written **texts, kb_message *message) {
  size_t count = (size_t)(search->how->beams > 1 ? search->how->beams : search->how->sequences), most = kb_most_tokens(search->how);
  kb_written *running = NULL, *next = NULL;
  kb_status status = KB_OK;
  work *w = calloc(1, sizeof *w);
  *texts = NULL;
  if (w == NULL) return kb_no_memory(message);
  w->search = search, w->how = search->how, w->most = most;
  *texts = new_texts(count, most + 1);
  if (search->how->beams > 1) running = new_texts(count, most + 1), next = new_texts(count, most + 1);
  if (*texts == NULL || (search->how->beams > 1 && (running == NULL || next == NULL))) status = kb_no_memory(message);
  else status = search->how->beams > 1 ? beams(w, running, next, *texts, message) : each(w, *texts, message);
  kb_written_free(running, count);
  kb_written_free(next, count);
  if (status != KB_OK) {
    kb_written_free(*texts, count);
    *texts = NULL;
  }
  free(w->x);
  free(w->marks);
  free(w->seen.data);
  free(w->sorting.copy);
  free(w->sorting.best);
  free(w);
  return status;
}
