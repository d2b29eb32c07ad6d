// Systems put the header in one of several folders, and compilers do not search all of them.

#if __has_include(<libpq-fe.h>)
#include <libpq-fe.h>
#elif __has_include(<postgresql/libpq-fe.h>)
#include <postgresql/libpq-fe.h>
#elif __has_include(</opt/homebrew/opt/libpq/include/libpq-fe.h>)
#include </opt/homebrew/opt/libpq/include/libpq-fe.h>
#else
#error "install libpq with its headers: libpq-dev, postgresql-libs or libpq"
#endif
