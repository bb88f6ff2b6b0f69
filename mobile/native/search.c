/* One text, token after token: greedy, drawn, by beams. answers/beam_search.py in C. */
#include <math.h>
#include <stdlib.h>

#include "generate.h"

struct kb_search {
  const kb_decoding *how;
  int32_t end;
  const int32_t *prompt;
  size_t prompt_count;
  size_t most, width, t, going, done; /* tokens of a text; of the vocabulary; steps; texts that go on; beams that have ended */
  kb_written *texts, *running, *next; /* the answers; of beams what goes on */
  float *x;                           /* of each text [width] */
  size_t x_room;
  uint8_t *marks;
  kb_ints seen;
  kb_sorting sorting;
  size_t of[KB_MOST_BEAMS]; /* of those that go on, which text each is */
  int32_t tokens[KB_MOST_BEAMS], origin[KB_MOST_BEAMS];
};

static void free_texts(kb_written *texts, size_t count) {
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
      free_texts(texts, count);
      return NULL;
    }
  }
  return texts;
}

static kb_status not_finite(kb_message *message) {
  return kb_fail(message, KB_DAMAGED, "the network gives logits that are not finite: write the file again");
}

/* What the width of the first logits says of the options. */
static kb_status check_width(kb_search *s, size_t width, kb_message *message) {
  const kb_decoding *how = s->how;
  long most = how->forced_bos > how->forced_eos ? how->forced_bos : how->forced_eos;
  size_t i;
  if (width < (size_t)how->beams) return kb_fail(message, KB_ARGUMENT, "beams is %ld, expected at most the vocabulary's %lu tokens", how->beams, (unsigned long)width);
  for (i = 0; i < how->suppress.count + how->begin_suppress.count; i++) {
    int32_t id = i < how->suppress.count ? how->suppress.data[i] : how->begin_suppress.data[i - how->suppress.count];
    if (id > most) most = id;
  }
  if (most >= (long)width) return kb_fail(message, KB_ARGUMENT, "the forced or suppressed token %ld is none of the vocabulary's %lu tokens", most, (unsigned long)width);
  s->width = width, s->marks = calloc(width + 1, 1);
  return s->marks == NULL ? kb_no_memory(message) : KB_OK;
}

/* Copies the logits into s->x, where they may be changed. */
static kb_status receive(kb_search *s, const float *logits, size_t size, kb_message *message) {
  size_t width = size / s->going;
  kb_status status = width == 0 ? KB_OK : s->marks == NULL ? check_width(s, width, message) : KB_OK;
  if (status != KB_OK) return status;
  if (size != s->going * s->width || s->end < 0 || (size_t)s->end >= width) return kb_fail(message, KB_DAMAGED, "the network gives %lu logits: write the file again", (unsigned long)width);
  if (!kb_reserve((void **)&s->x, &s->x_room, size, sizeof *s->x)) return kb_no_memory(message);
  memcpy(s->x, logits, size * sizeof *s->x);
  return KB_OK;
}

/* Penalties and bans of a text's logits or log-probabilities at s->x[number * width]. */
static kb_status adjust(kb_search *s, size_t number, const kb_written *text, kb_message *message) {
  size_t i;
  s->seen.count = 0;
  for (i = 0; i < s->prompt_count; i++) kb_push_int(&s->seen, s->prompt[i]);
  for (i = 0; i < text->count; i++) kb_push_int(&s->seen, text->ids[i]);
  if (s->seen.failed) return kb_no_memory(message);
  kb_adjust(s->how, s->x + number * s->width, s->width, &s->seen, s->t, s->end, s->marks);
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

static kb_status each(kb_search *s, const float *logits, kb_message *message) {
  size_t i, next;
  for (i = 0; i < s->going; i++) {
    kb_written *text = s->texts + s->of[i];
    float largest, rest, *x = s->x + i * s->width;
    size_t token = 0;
    kb_status status;
    normalizer(logits + i * s->width, s->width, &largest, &rest);
    if (!(rest - rest == 0)) return not_finite(message);
    status = adjust(s, i, text, message);
    if (status != KB_OK) return status;
    if (!s->how->draws) token = kb_most(x, s->width);
    else if (!kb_draw(s->how, x, s->width, s->of[i], s->t, &s->sorting, &token)) return kb_no_memory(message);
    text->score += logits[i * s->width + token] - largest - rest;
    text->ids[text->count++] = (int32_t)token;
    if (!(text->score - text->score == 0)) return not_finite(message);
  }
  for (i = next = 0; i < s->going; i++) {
    const kb_written *text = s->texts + s->of[i];
    if (text->ids[text->count - 1] == s->end) continue;
    s->origin[next] = (int32_t)i, s->tokens[next] = text->ids[text->count - 1], s->of[next++] = s->of[i];
  }
  s->going = next;
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
static kb_status totals(kb_search *s, kb_message *message) {
  size_t i, k;
  for (i = 0; i < s->going; i++) {
    float largest, rest, *x = s->x + i * s->width;
    kb_status status;
    normalizer(x, s->width, &largest, &rest);
    if (!(rest - rest == 0)) return not_finite(message);
    for (k = 0; k < s->width; k++) x[k] = x[k] - largest - rest;
    status = adjust(s, i, s->running + i, message);
    if (status != KB_OK) return status;
    for (k = 0; k < s->width; k++) x[k] += s->running[i].score;
  }
  return KB_OK;
}

/* Takes the best 2 * beams of s->x: into s->next what goes on, into s->texts what ends. */
static kb_status take(kb_search *s, size_t *kept, kb_message *message) {
  size_t beams = (size_t)s->how->beams, all = s->going * s->width, best = 2 * beams < all ? 2 * beams : all, rank;
  float length = powf((float)(s->t + 1), (float)s->how->length_penalty);
  *kept = 0;
  if (!kb_largest(s->x, all, best, &s->sorting)) return kb_no_memory(message);
  for (rank = 0; rank < best; rank++) {
    kb_scored found = s->sorting.best[rank];
    size_t beam = found.at / s->width;
    int32_t token = (int32_t)(found.at % s->width);
    if (token != s->end && s->t + 1 < s->most) {
      if (*kept == beams) continue;
      s->origin[*kept] = (int32_t)beam, s->tokens[*kept] = token;
      longer(s->running + beam, token, found.x, s->next + (*kept)++);
    } else if (rank < beams) {
      finish(s->texts, &s->done, beams, s->running + beam, token, found.x / length);
    }
  }
  return KB_OK;
}

static kb_status beams(kb_search *s, kb_message *message) {
  const kb_decoding *how = s->how;
  kb_written *last = s->running;
  float most = powf((float)(how->early == 2 && how->length_penalty > 0 ? s->most : s->t + 1), (float)how->length_penalty);
  size_t kept = 0;
  kb_status status = totals(s, message);
  if (status == KB_OK) status = take(s, &kept, message);
  if (status != KB_OK) return status;
  if (s->done == (size_t)how->beams && (how->early == 1 || (kept > 0 && s->next[0].score / most <= s->texts[s->done - 1].score))) kept = 0;
  s->running = s->next, s->next = last, s->going = kept;
  return KB_OK;
}

/* ---- a search ---- */

static size_t count_of(const kb_decoding *how) { return (size_t)(how->beams > 1 ? how->beams : how->sequences); }

kb_status kb_search_open(const kb_decoding *how, int32_t end, const int32_t *prompt, size_t count, kb_search **search, kb_message *message) {
  kb_search *s = *search = calloc(1, sizeof *s);
  size_t i, texts = count_of(how);
  if (s == NULL) return kb_no_memory(message);
  s->how = how, s->end = end, s->prompt = prompt, s->prompt_count = count;
  s->most = kb_most_tokens(how), s->going = how->beams > 1 ? 1 : texts;
  s->texts = new_texts(texts, s->most + 1);
  if (how->beams > 1) s->running = new_texts(texts, s->most + 1), s->next = new_texts(texts, s->most + 1);
  for (i = 0; i < s->going; i++) s->of[i] = i, s->tokens[i] = prompt[count - 1];
  if (s->texts != NULL && (how->beams == 1 || (s->running != NULL && s->next != NULL))) return KB_OK;
  kb_search_close(s);
  *search = NULL;
  return kb_no_memory(message);
}

kb_asked kb_search_asked(const kb_search *s) {
  kb_asked asked;
  asked.count = s->going, asked.column = s->prompt_count - 1 + s->t, asked.tokens = s->tokens, asked.origins = s->origin;
  return asked;
}

kb_status kb_search_push(kb_search *s, const float *logits, size_t size, kb_message *message) {
  kb_status status = s->going > 0 ? receive(s, logits, size, message) : kb_fail(message, KB_ARGUMENT, "logits of a text that has ended");
  if (status == KB_OK) status = s->how->beams > 1 ? beams(s, message) : each(s, logits, message);
  if (status == KB_OK && ++s->t == s->most) s->going = 0;
  return status;
}

const kb_written *kb_search_texts(const kb_search *s) { return s->texts; }

void kb_search_close(kb_search *s) {
  if (s == NULL) return;
  free_texts(s->texts, count_of(s->how));
  free_texts(s->running, count_of(s->how));
  free_texts(s->next, count_of(s->how));
  free(s->x);
  free(s->marks);
  free(s->seen.data);
  free(s->sorting.copy);
  free(s->sorting.best);
  free(s);
}
