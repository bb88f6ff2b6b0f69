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
    jmethodID make = (*env)->GetMethodID(env, type, "<init>", "([BZ)V");
    jobject error = make ? (*env)->NewObject(env, type, make, message, (jboolean)(status == KB_UNSUPPORTED)) : NULL;
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
