/* LiteRT's C API, loaded at run time: what runs the network of a file. Not of WebAssembly, where LiteRT.js does. */
#ifndef KB_LITERT_H
#define KB_LITERT_H

#include <stdbool.h>

#include "generate.h"

#define MOST_PARTS 8   /* inputs or outputs of a signature */
#define MOST_NAME 256  /* bytes of a name */
#define MOST_RANK 8    /* LITERT_TENSOR_MAX_RANK */
#define INT32 2        /* kLiteRtElementTypeInt32 ... */
#define BOOL 6
#define FLOAT32 1

typedef struct layout { unsigned int rank : 7, has_strides : 1; int32_t dimensions[MOST_RANK]; uint32_t strides[MOST_RANK]; } layout;
typedef struct ranked { int32_t element; layout shape; } ranked; /* LiteRtRankedTensorType */
typedef struct option { int32_t tag; struct { int32_t type; union { int64_t number; const void *pointer; } value; } any; } option;

typedef struct api {
  int (*CreateEnvironment)(int, const option *, void **);
  void (*DestroyEnvironment)(void *);
  int (*CreateModelFromBuffer)(void *, const void *, size_t, void **);
  void (*DestroyModel)(void *);
  int (*CreateOptions)(void **);
  void (*DestroyOptions)(void *);
  int (*SetOptionsHardwareAccelerators)(void *, int);
  int (*AddOpaqueOptions)(void *, void *);
  int (*CreateOpaqueOptions)(const char *, void *, void (*)(void *), void **);
  int (*CreateCompiledModel)(void *, void *, void *, void **);
  void (*DestroyCompiledModel)(void *);
  int (*SetCompiledModelCancellationFunction)(void *, void *, bool (*)(void *));
  int (*GetNumModelSignatures)(void *, size_t *);
  int (*GetModelSignature)(void *, size_t, void **);
  int (*GetSignatureKey)(void *, const char **);
  int (*GetNumSignatureInputs)(void *, size_t *);
  int (*GetSignatureInputName)(void *, size_t, const char **);
  int (*GetSignatureInputTensorByIndex)(void *, size_t, void **);
  int (*GetNumSignatureOutputs)(void *, size_t *);
  int (*GetSignatureOutputName)(void *, size_t, const char **);
  int (*GetSignatureOutputTensorByIndex)(void *, size_t, void **);
  int (*GetRankedTensorType)(void *, ranked *);
  int (*CompiledModelResizeInputTensor)(void *, size_t, size_t, const int *, size_t);
  int (*GetCompiledModelOutputTensorLayouts)(void *, size_t, size_t, layout *, bool);
  int (*GetCompiledModelInputBufferRequirements)(void *, size_t, size_t, void **);
  int (*GetCompiledModelOutputBufferRequirements)(void *, size_t, size_t, void **);
  int (*CreateManagedTensorBufferFromRequirements)(void *, const ranked *, void *, void **);
  void (*DestroyTensorBuffer)(void *);
  int (*GetTensorBufferSize)(void *, size_t *);
  int (*LockTensorBuffer)(void *, void **, int);
  int (*UnlockTensorBuffer)(void *);
  int (*RunCompiledModel)(void *, size_t, size_t, void **, size_t, void **);
  int (*CompiledModelIsFullyAccelerated)(void *, bool *);
  int (*GetNumAccelerators)(void *, size_t *);
  int (*GetAccelerator)(void *, size_t, void **);
  int (*GetAcceleratorHardwareSupport)(void *, int *);
  int (*CreateModelFromFd)(void *, int, size_t, size_t, void **); /* not called: with it LiteRT's models know an environment */
} api;

/* The buffers of the signature that ran last. */
typedef struct prepared {
  size_t number, length, inputs, outputs, values; /* number: of the signature; values: floats of the output */
  size_t place;                                   /* of the output among the outputs */
  char name[MOST_NAME];                           /* empty: none is prepared */
  char input_names[MOST_PARTS][MOST_NAME];
  void *input[MOST_PARTS], *output[MOST_PARTS];
} prepared;

typedef struct litert {
  void *library, *environment, *model, *compiled;
  api call;
  prepared now;
  float *values; /* of the last run */
  size_t room;
} litert;

/* A status of LiteRT's as a line; a file that is not as its bundle says. */
kb_status kb_litert_refused(kb_message *message, const char *what, int status);
kb_status kb_litert_differs(kb_message *message, const char *signature, const char *what, const char *name);
/* The signature of that name -> its number and handle. */
kb_status kb_litert_signature(litert *l, const char *name, size_t *number, void **signature, kb_message *message);
/* Copies numbers into a buffer, or out of one; LiteRT's status. */
int kb_litert_copy(litert *l, void *buffer, void *data, size_t bytes, int write);

/* Opens `data` as a network. It must stay until `network->close`; so must `*cancelled`, which ends a run where it is not 0.

   options: its library (NULL: the program's own functions, then the name that the platform's loader knows), threads and delegate, which
   were checked; or NULL. */
kb_status kb_litert_open(kb_text data, const kb_runner_options *options, const int32_t *cancelled, kb_network *network,
                         kb_message *message);

/* LiteRT's bit of a delegate's name; 0: there is none of that name. */
int kb_litert_delegate(const char *name);

/* The programs of a network that kb_litert_open opened, step by step (steps.c); they are closed before it. logits: a step's output. */
kb_status kb_litert_programs(kb_network *network, const char *logits, kb_programs *programs, kb_message *message);

#endif
