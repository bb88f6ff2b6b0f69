/* kerasbert.h for org.kerasbert.Core: compiled together with the library's own files. */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "kerasbert.h"

#define CORE(type, name) JNIEXPORT type JNICALL Java_org_kerasbert_Core_##name

static void *pointer(jlong handle) { return (void *)(intptr_t)handle; }
static jlong handle_of(const void *memory) { return (jlong)(intptr_t)memory; }

static jbyteArray bytes_of(JNIEnv *env, const char *data, size_t size) {
  jbyteArray made = (*env)->NewByteArray(env, (jsize)size);
  if (made != NULL) (*env)->SetByteArrayRegion(env, made, 0, (jsize)size, (const jbyte *)data);
  return made;
}

/* Throws a CoreException where a call failed. */
static int failed(JNIEnv *env, kb_status status, const char *text) {
  jclass type;
  jbyteArray message;
  if (status == KB_OK) return 0;
  type = (*env)->FindClass(env, "org/kerasbert/CoreException");
  message = type ? bytes_of(env, text, strlen(text)) : NULL;
  if (message != NULL) {
    jmethodID make = (*env)->GetMethodID(env, type, "<init>", "([BI)V");
    jobject error = make ? (*env)->NewObject(env, type, make, message, (jint)status) : NULL;
    if (error != NULL) (*env)->Throw(env, (jthrowable)error);
  }
  return 1;
}

static int no_memory(JNIEnv *env) { return failed(env, KB_NO_MEMORY, "out of memory"); }

static int known(JNIEnv *env, const void *object) {
  return object != NULL || !failed(env, KB_ARGUMENT, "a null stands where a text belongs");
}

/* A copy of a Java array; `data` is NULL where an exception waits. */
static kb_text copied(JNIEnv *env, jbyteArray array) {
  kb_text made = {NULL, 0};
  char *data;
  if (!known(env, array)) return made;
  made.size = (size_t)(*env)->GetArrayLength(env, array);
  data = malloc(made.size + 1);
  if (data == NULL) no_memory(env);
  else (*env)->GetByteArrayRegion(env, array, 0, (jsize)made.size, (jbyte *)data);
  made.data = data;
  return made;
}

/* The same as a string of C, such as a path. */
static kb_text terminated(JNIEnv *env, jbyteArray array) {
  kb_text made = copied(env, array);
  if (made.data != NULL) ((char *)made.data)[made.size] = 0;
  return made;
}

static void drop(kb_text *texts, size_t count) {
  size_t i;
  for (i = 0; texts != NULL && i < count; i++) free((void *)texts[i].data);
  free(texts);
}

/* Copies of the arrays of an array; NULL where an exception waits. */
static kb_text *copies(JNIEnv *env, jobjectArray arrays, size_t *count) {
  kb_text *made;
  size_t i;
  if (!known(env, arrays)) return NULL;
  *count = (size_t)(*env)->GetArrayLength(env, arrays);
  made = calloc(*count + 1, sizeof *made);
  if (made == NULL) no_memory(env);
  for (i = 0; made != NULL && i < *count; i++) {
    jbyteArray each = (jbyteArray)(*env)->GetObjectArrayElement(env, arrays, (jsize)i);
    made[i] = copied(env, each);
    (*env)->DeleteLocalRef(env, each);
    if (made[i].data == NULL) {
      drop(made, *count);
      return NULL;
    }
  }
  return made;
}

/* Arrays of ints as int[][]. */
static jobjectArray table(JNIEnv *env, const int32_t *const *values, const size_t *sizes, jsize count) {
  jclass type = (*env)->FindClass(env, "[I");
  jobjectArray made = type ? (*env)->NewObjectArray(env, count, type, NULL) : NULL;
  jsize i;
  for (i = 0; made != NULL && i < count; i++) {
    jintArray each = (*env)->NewIntArray(env, (jsize)sizes[i]);
    if (each == NULL) return NULL;
    if (sizes[i]) (*env)->SetIntArrayRegion(env, each, 0, (jsize)sizes[i], (const jint *)values[i]);
    (*env)->SetObjectArrayElement(env, made, i, each);
    (*env)->DeleteLocalRef(env, each);
  }
  return made;
}

CORE(jint, version)(JNIEnv *env, jclass core) {
  (void)env, (void)core;
  return kb_version();
}

CORE(jlong, openTokenizer)(JNIEnv *env, jclass core, jobjectArray arrays) {
  kb_message message;
  kb_tokenizer *tokenizer = NULL;
  size_t count = 0;
  kb_text *texts = copies(env, arrays, &count);
  (void)core;
  if (texts == NULL) return 0;
  /* a kb_file is two kb_text: a name and a content */
  failed(env, kb_tokenizer_open((const kb_file *)(const void *)texts, count / 2, &tokenizer, &message), message.text);
  drop(texts, count);
  return handle_of(tokenizer);
}

CORE(void, closeTokenizer)(JNIEnv *env, jclass core, jlong tokenizer) {
  (void)env, (void)core;
  kb_tokenizer_close(pointer(tokenizer));
}

CORE(jlong, newTokens)(JNIEnv *env, jclass core) {
  kb_tokens *tokens = kb_tokens_new();
  (void)core;
  if (tokens == NULL) no_memory(env);
  return handle_of(tokens);
}

CORE(void, freeTokens)(JNIEnv *env, jclass core, jlong tokens) {
  (void)env, (void)core;
  kb_tokens_free(pointer(tokens));
}

CORE(jobjectArray, tokens)
(JNIEnv *env, jclass core, jlong tokenizer, jlong handle, jint call, jbyteArray first, jbyteArray second, jint length) {
  kb_tokens *tokens = pointer(handle);
  kb_message message;
  kb_text texts[2] = {{NULL, 0}, {NULL, 0}};
  kb_status status = KB_OK;
  jobjectArray made = NULL;
  (void)core;
  texts[0] = copied(env, first);
  if (texts[0].data != NULL && second != NULL) texts[1] = copied(env, second);
  if (texts[0].data != NULL && (second == NULL || texts[1].data != NULL)) {
    if (call == 0) status = kb_encode(pointer(tokenizer), texts[0], tokens, &message);
    else if (call == 1) status = kb_tokenize(pointer(tokenizer), texts[0], tokens, &message);
    else status = kb_pack(pointer(tokenizer), texts[0], second ? texts + 1 : NULL, (size_t)(length > 0 ? length : 0), tokens, &message);
    if (!failed(env, status, message.text)) {
      const int32_t *values[3];
      size_t sizes[3];
      sizes[0] = sizes[1] = tokens->count, sizes[2] = call == 2 ? 1 : tokens->count;
      values[0] = tokens->ids, values[1] = call == 2 ? tokens->segments : tokens->starts;
      values[2] = call == 2 ? &tokens->truncated : tokens->ends;
      made = table(env, values, sizes, call == 0 ? 1 : 3);
    }
  }
  free((void *)texts[0].data);
  free((void *)texts[1].data);
  return made;
}

CORE(jlong, openModel)(JNIEnv *env, jclass core, jobject buffer, jint size) {
  kb_message message;
  kb_model *model = NULL;
  const void *data = (*env)->GetDirectBufferAddress(env, buffer);
  (void)core;
  if (data == NULL && size > 0) failed(env, KB_ARGUMENT, "the file is no direct buffer");
  else failed(env, kb_model_open(data, (size_t)size, &model, &message), message.text);
  return handle_of(model);
}

CORE(void, closeModel)(JNIEnv *env, jclass core, jlong model) {
  (void)env, (void)core;
  kb_model_close(pointer(model));
}

CORE(jlong, tokenizer)(JNIEnv *env, jclass core, jlong model) {
  (void)env, (void)core;
  return handle_of(kb_model_tokenizer(pointer(model)));
}

CORE(jobjectArray, names)(JNIEnv *env, jclass core, jlong model) {
  const char *kind = kb_model_kind(pointer(model));
  kb_text settings = kb_model_settings(pointer(model));
  jclass type = (*env)->FindClass(env, "[B");
  jobjectArray made = type ? (*env)->NewObjectArray(env, 2, type, NULL) : NULL;
  (void)core;
  if (made != NULL) (*env)->SetObjectArrayElement(env, made, 0, bytes_of(env, kind, strlen(kind)));
  if (made != NULL) (*env)->SetObjectArrayElement(env, made, 1, bytes_of(env, settings.data, settings.size));
  return made;
}

CORE(jint, longest)(JNIEnv *env, jclass core, jlong model) {
  (void)env, (void)core;
  return (jint)kb_model_longest(pointer(model));
}

CORE(jlong, makeRows)(JNIEnv *env, jclass core, jlong model, jobjectArray arrays, jboolean words) {
  kb_message message;
  kb_rows *rows = NULL;
  size_t count = 0;
  kb_text *texts = copies(env, arrays, &count);
  (void)core;
  if (texts == NULL) return 0;
  failed(env, kb_rows_make(pointer(model), texts, count, words, &rows, &message), message.text);
  drop(texts, count);
  return handle_of(rows);
}

CORE(jint, count)(JNIEnv *env, jclass core, jlong rows) {
  (void)env, (void)core;
  return (jint)kb_rows_count(pointer(rows));
}

CORE(jobjectArray, row)(JNIEnv *env, jclass core, jlong rows, jint number) {
  kb_row row = kb_rows_row(pointer(rows), (size_t)number);
  int32_t last[2];
  const int32_t *values[3];
  size_t sizes[3];
  (void)core;
  last[0] = row.position, last[1] = row.truncated;
  values[0] = row.ids, values[1] = row.segments, values[2] = last;
  sizes[0] = sizes[1] = row.length, sizes[2] = 2;
  return table(env, values, sizes, 3);
}

CORE(jbyteArray, answer)(JNIEnv *env, jclass core, jlong model, jlong rows, jobjectArray outputs) {
  size_t count = (size_t)(*env)->GetArrayLength(env, outputs), i;
  float **values = calloc(count + 1, sizeof *values);
  size_t *sizes = calloc(count + 1, sizeof *sizes);
  int whole = values != NULL && sizes != NULL;
  kb_message message;
  kb_text json;
  jbyteArray made = NULL;
  (void)core;
  if (!whole) no_memory(env);
  for (i = 0; whole && i < count; i++) {
    jfloatArray each = (jfloatArray)(*env)->GetObjectArrayElement(env, outputs, (jsize)i);
    whole = known(env, each);
    if (!whole) break;
    sizes[i] = (size_t)(*env)->GetArrayLength(env, each);
    values[i] = malloc(sizes[i] * sizeof(float) + 1);
    whole = values[i] != NULL || !no_memory(env);
    if (whole) (*env)->GetFloatArrayRegion(env, each, 0, (jsize)sizes[i], values[i]);
    (*env)->DeleteLocalRef(env, each);
  }
  if (whole && !failed(env, kb_answer(pointer(model), pointer(rows), (const float *const *)values, sizes, &json, &message), message.text))
    made = bytes_of(env, json.data, json.size);
  for (i = 0; values != NULL && i < count; i++) free(values[i]);
  free(values);
  free(sizes);
  return made;
}

CORE(void, freeRows)(JNIEnv *env, jclass core, jlong rows) {
  (void)env, (void)core;
  kb_rows_free(pointer(rows));
}

/* ---- a runner ---- */

CORE(jlong, openRunner)
(JNIEnv *env, jclass core, jbyteArray path, jobject buffer, jbyteArray library, jint threads, jint rows, jbyteArray delegate) {
  kb_message message;
  kb_runner *runner = NULL;
  kb_runner_options options;
  kb_text name = {NULL, 0}, file = {NULL, 0}, by = {NULL, 0};
  (void)core;
  if (library != NULL && (name = terminated(env, library)).data == NULL) return 0;
  if (delegate != NULL && (by = terminated(env, delegate)).data == NULL) {
    free((void *)name.data);
    return 0;
  }
  options.library = name.data, options.threads = threads, options.rows = (size_t)rows, options.delegate = by.data;
  if (path != NULL) {
    file = terminated(env, path);
    if (file.data != NULL) failed(env, kb_runner_open(file.data, &options, &runner, &message), message.text);
  } else {
    const void *data = (*env)->GetDirectBufferAddress(env, buffer);
    size_t size = (size_t)(*env)->GetDirectBufferCapacity(env, buffer);
    failed(env, kb_runner_open_bytes(data, size, &options, &runner, &message), message.text);
  }
  free((void *)file.data);
  free((void *)name.data);
  free((void *)by.data);
  return handle_of(runner);
}

CORE(jbyteArray, kind)(JNIEnv *env, jclass core, jlong runner) {
  const char *kind = kb_model_kind(kb_runner_model(pointer(runner)));
  (void)core;
  return bytes_of(env, kind, strlen(kind));
}

/* `prompted`: the first of the arrays is the name of a prompt. */
static jbyteArray answered(JNIEnv *env, jlong runner, jobjectArray arrays, jboolean words, int prompted) {
  kb_message message;
  size_t count = 0;
  kb_text *texts = copies(env, arrays, &count), json;
  kb_status status;
  if (texts == NULL) return NULL;
  if (prompted) status = kb_runner_prompted(pointer(runner), texts[0], texts + 1, count - 1, &json, &message);
  else status = kb_runner_answer(pointer(runner), texts, count, words, &json, &message);
  drop(texts, count);
  return failed(env, status, message.text) ? NULL : bytes_of(env, json.data, json.size);
}

CORE(jbyteArray, prompted)(JNIEnv *env, jclass core, jlong runner, jobjectArray arrays) {
  (void)core;
  return answered(env, runner, arrays, 0, 1);
}

CORE(jbyteArray, ask)(JNIEnv *env, jclass core, jlong runner, jobjectArray arrays, jboolean words) {
  (void)core;
  return answered(env, runner, arrays, words, 0);
}

/* A java.util.function.Predicate that gets pieces. */
typedef struct hearing {
  JNIEnv *env;
  jobject listener;
  jmethodID test;
} hearing;

/* What the listener throws waits until the text has ended. */
static int32_t hear(void *context, kb_text piece) {
  hearing *h = context;
  jbyteArray bytes = bytes_of(h->env, piece.data, piece.size);
  jboolean more = bytes != NULL && (*h->env)->CallBooleanMethod(h->env, h->listener, h->test, bytes);
  if ((*h->env)->ExceptionCheck(h->env)) return 1;
  (*h->env)->DeleteLocalRef(h->env, bytes);
  return !more;
}

CORE(void, generate)(JNIEnv *env, jclass core, jlong runner, jbyteArray text, jbyteArray settings, jobject listener) {
  hearing h;
  kb_message message;
  kb_text source, said, json;
  jclass type = (*env)->FindClass(env, "java/util/function/Predicate");
  (void)core;
  h.env = env, h.listener = listener, h.test = type ? (*env)->GetMethodID(env, type, "test", "(Ljava/lang/Object;)Z") : NULL;
  if (h.test == NULL) return;
  source = copied(env, text);
  if (source.data == NULL) return;
  said = copied(env, settings);
  if (said.data != NULL) {
    kb_status status = kb_runner_generate(pointer(runner), source, said, listener ? hear : NULL, &h, &json, &message);
    if (!(*env)->ExceptionCheck(env)) failed(env, status, message.text);
  }
  free((void *)source.data);
  free((void *)said.data);
}

CORE(void, score)(JNIEnv *env, jclass core, jlong runner, jbyteArray text) {
  kb_message message;
  kb_text source = copied(env, text), json;
  (void)core;
  if (source.data == NULL) return;
  failed(env, kb_runner_score(pointer(runner), source, &json, &message), message.text);
  free((void *)source.data);
}

/* Puts an array at a place of the answer; 0 where an exception waits. */
static int put(JNIEnv *env, jobjectArray answer, jsize at, jobject array) {
  if (array == NULL) return 0;
  (*env)->SetObjectArrayElement(env, answer, at, array);
  (*env)->DeleteLocalRef(env, array);
  return 1;
}

static jobject ints_of(JNIEnv *env, const jint *values, size_t count) {
  jintArray made = (*env)->NewIntArray(env, (jsize)count);
  if (made != NULL && count) (*env)->SetIntArrayRegion(env, made, 0, (jsize)count, values);
  return made;
}

static jobject doubles_of(JNIEnv *env, const jdouble *values, size_t count) {
  jdoubleArray made = (*env)->NewDoubleArray(env, (jsize)count);
  if (made != NULL && count) (*env)->SetDoubleArrayRegion(env, made, 0, (jsize)count, values);
  return made;
}

static jobject floats_of(JNIEnv *env, const float *values, size_t count) {
  jfloatArray made = (*env)->NewFloatArray(env, (jsize)count);
  if (made != NULL && count) (*env)->SetFloatArrayRegion(env, made, 0, (jsize)count, values);
  return made;
}

static jobject texts_of(JNIEnv *env, const kb_text *texts, size_t count) {
  jclass type = (*env)->FindClass(env, "[B");
  jobjectArray made = type ? (*env)->NewObjectArray(env, (jsize)count, type, NULL) : NULL;
  size_t i;
  for (i = 0; made != NULL && i < count; i++)
    if (!put(env, made, (jsize)i, bytes_of(env, texts[i].data, texts[i].size))) return NULL;
  return made;
}

/* Three arrays from `at` on: texts, scores, and two whole numbers of each. */
static int put_columns(JNIEnv *env, jobjectArray answer, jsize at, const kb_label *labels, const kb_span *spans, size_t count) {
  kb_text *texts = malloc((count + 1) * sizeof *texts);
  jdouble *scores = malloc((count + 1) * sizeof *scores);
  jint *numbers = malloc((2 * count + 1) * sizeof *numbers);
  size_t i;
  int good = texts != NULL && scores != NULL && numbers != NULL;
  if (!good) no_memory(env);
  for (i = 0; good && i < count; i++) {
    texts[i] = labels ? labels[i].name : spans[i].label, scores[i] = labels ? labels[i].score : spans[i].score;
    numbers[2 * i] = labels ? labels[i].id : (jint)spans[i].units.start;
    numbers[2 * i + 1] = labels ? labels[i].chosen : (jint)spans[i].units.end;
  }
  good = good && put(env, answer, at, texts_of(env, texts, count)) && put(env, answer, at + 1, doubles_of(env, scores, count)) &&
         put(env, answer, at + 2, ints_of(env, numbers, 2 * count));
  free(texts);
  free(scores);
  free(numbers);
  return good;
}

CORE(jobjectArray, result)(JNIEnv *env, jclass core, jlong runner) {
  const kb_result *from = kb_runner_result(pointer(runner));
  jclass type = (*env)->FindClass(env, "java/lang/Object");
  jobjectArray made = type ? (*env)->NewObjectArray(env, 12, type, NULL) : NULL;
  jint about[2];
  (void)core;
  about[0] = (jint)(from->mask_count ? from->label_count / from->mask_count : 0), about[1] = from->truncated;
  return made != NULL && put_columns(env, made, 0, from->labels, NULL, from->label_count) &&
                 put_columns(env, made, 3, NULL, from->spans, from->span_count) &&
                 put_columns(env, made, 6, NULL, from->entities, from->entity_count) &&
                 put(env, made, 9, floats_of(env, from->values, from->value_count)) &&
                 put(env, made, 10, bytes_of(env, from->text.data, from->text.size)) && put(env, made, 11, ints_of(env, about, 2))
             ? made
             : NULL;
}

CORE(void, cancel)(JNIEnv *env, jclass core, jlong runner) {
  (void)env, (void)core;
  kb_runner_cancel(pointer(runner));
}

CORE(void, closeRunner)(JNIEnv *env, jclass core, jlong runner) {
  (void)env, (void)core;
  kb_runner_close(pointer(runner));
}

/* ---- an index ---- */

CORE(jlong, openIndex)(JNIEnv *env, jclass core, jbyteArray path, jobject buffer, jlong runner) {
  const kb_model *model = kb_runner_model(pointer(runner));
  kb_message message;
  kb_index *index = NULL;
  (void)core;
  if (path != NULL) {
    kb_text file = terminated(env, path);
    if (file.data != NULL) failed(env, kb_index_open_file(file.data, model, &index, &message), message.text);
    free((void *)file.data);
  } else {
    const void *data = (*env)->GetDirectBufferAddress(env, buffer);
    size_t size = (size_t)(*env)->GetDirectBufferCapacity(env, buffer);
    failed(env, kb_index_open(data, size, model, &index, &message), message.text);
  }
  return handle_of(index);
}

CORE(jint, indexSize)(JNIEnv *env, jclass core, jlong index) {
  (void)env, (void)core;
  return (jint)kb_index_count(pointer(index));
}

/* Hits as int[], double[], byte[][]; NULL where an exception waits. */
static jobjectArray hits_of(JNIEnv *env, const kb_hit *hits, size_t count) {
  jclass type = (*env)->FindClass(env, "java/lang/Object");
  jobjectArray made = type ? (*env)->NewObjectArray(env, 3, type, NULL) : NULL;
  jint *numbers = malloc((count + 1) * sizeof *numbers);
  jdouble *scores = malloc((count + 1) * sizeof *scores);
  kb_text *texts = malloc((2 * count + 1) * sizeof *texts);
  size_t i;
  int good = made != NULL && numbers != NULL && scores != NULL && texts != NULL;
  if (made != NULL && !good) no_memory(env);
  for (i = 0; good && i < count; i++) {
    numbers[i] = (jint)hits[i].number, scores[i] = hits[i].score;
    texts[2 * i] = hits[i].id, texts[2 * i + 1] = hits[i].text;
  }
  good = good && put(env, made, 0, ints_of(env, numbers, count)) && put(env, made, 1, doubles_of(env, scores, count)) &&
         put(env, made, 2, texts_of(env, texts, 2 * count));
  free(numbers);
  free(scores);
  free(texts);
  return good ? made : NULL;
}

CORE(jobjectArray, nearest)(JNIEnv *env, jclass core, jlong index, jfloatArray vector, jint top) {
  size_t width, count = kb_index_count(pointer(index)), most = top < 1 ? 0 : (size_t)top < count ? (size_t)top : count, found = 0;
  kb_message message;
  kb_hit *hits;
  jfloat *values;
  jobjectArray made = NULL;
  (void)core;
  if (!known(env, vector)) return NULL;
  width = (size_t)(*env)->GetArrayLength(env, vector);
  hits = calloc(most + 1, sizeof *hits), values = malloc((width + 1) * sizeof *values);
  if (hits == NULL || values == NULL) no_memory(env);
  else {
    (*env)->GetFloatArrayRegion(env, vector, 0, (jsize)width, values);
    if (!failed(env, kb_index_nearest(pointer(index), values, width, most, hits, &found, &message), message.text))
      made = hits_of(env, hits, found);
  }
  free(hits);
  free(values);
  return made;
}

CORE(void, closeIndex)(JNIEnv *env, jclass core, jlong index) {
  (void)env, (void)core;
  kb_index_close(pointer(index));
}
