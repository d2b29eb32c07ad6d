// What the headers of libpq need: Libc, include/_stdio.h
#include <stddef.h>

typedef struct __sFILE FILE;
