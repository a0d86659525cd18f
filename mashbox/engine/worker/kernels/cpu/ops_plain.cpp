// The kernels for any processor.
#include "lanes_plain.h"

#define TABLE kPlain
#include "ops.inc"
