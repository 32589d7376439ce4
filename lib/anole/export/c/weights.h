/* The network's weights: in the library, or in a file that is mapped. */
#ifndef WEIGHTS_H_
#define WEIGHTS_H_
#include <stddef.h>

#include "api.h"

typedef struct {
  const char* content;
  size_t mapped_bytes; /* 0 where they are in the library */
} weights;

/* Finds the weights; the file is opened, mapped and compared with what the library expects. */
network_error weights_open(weights* opened, const char* path, int check);

void weights_close(weights* opened);

#endif
