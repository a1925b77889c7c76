/* What the C files of the stager's first process share. */
#define _GNU_SOURCE
#include "first.h"

#include "calls.h"
#include "names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Closes what the kernel lists of first to last. To try each number up to the limit takes half a second where a million
 * files may be open, and misses what is above a limit that has been lowered. */
static void close_listed(int first, int last)
{
	DIR *all;
	struct dirent *entry;

	close(first); /* all numbers may be taken: there must be one for the folder */
	all = opendir("/proc/thread-self/fd");
	if (!all)
		give_up("list descriptors");
	while ((entry = readdir(all))) {
		int fd = atoi(entry->d_name);

		if (fd >= first && fd <= last && fd != dirfd(all))
			close(fd);
	}
	closedir(all);
}

void close_between(int first, int last)
{
	if (first <= last && syscall(SYS_close_range, first, last, 0) < 0)
		close_listed(first, last);
}
