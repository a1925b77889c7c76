/* What the C files of the stager's first process share. */
#define _GNU_SOURCE
#include "first.h"

#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void give_up(const char *what)
{
	fprintf(stderr, STAGER_PROGRAM ": %s: %s\n", what, strerror(errno));
	_exit(1);
}

int move_up(int fd)
{
	int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);

	if (moved < 0)
		give_up("make descriptor");
	close(fd);
	return moved;
}

void close_between(int first, int last)
{
	int fd, max = (int)sysconf(_SC_OPEN_MAX);

	if (syscall(SYS_close_range, first, last, 0) == 0)
		return;
	for (fd = first; fd <= last && fd < max; fd++)
		close(fd);
}
