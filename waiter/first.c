/* How each of the C files ends the stager's first process. */
#include "first.h"

#include "names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void give_up(const char *what)
{
	fprintf(stderr, STAGER_PROGRAM ": %s: %s\n", what, strerror(errno));
	_exit(1);
}
