/* LiteRT's C API, loaded at run time: what runs the network of a file. Not of WebAssembly, where LiteRT.js does. */
#ifndef KB_LITERT_H
#define KB_LITERT_H

#include "internal.h"

/* Opens `data` as a network. It must stay until `network->close`; so must `*cancelled`, which ends a run where it is not 0.

   library: LiteRT's file, or NULL: the program's own functions, then the name that the platform's loader knows. */
kb_status kb_litert_open(kb_text data, const char *library, int32_t threads, const int32_t *cancelled, kb_network *network,
                         kb_message *message);

#endif
