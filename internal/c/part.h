/* How a constructor of the C library finds out which part of the program this process is. */
#ifndef STAGER_PART_H
#define STAGER_PART_H

#include "names.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Reads the process's arguments into line, each ended by NUL: argv[0] and, behind it, the others. glibc passes argv to
 * a constructor and musl does not, so this reads /proc/self/cmdline (proc_pid_cmdline(5)). Returns their size: 0 if
 * they do not fit, and in the processes that are this program again, whatever their arguments are.
 */
static size_t read_arguments(char *line, size_t size)
{
	static const char *const marks[] = { SHIM_ENV, "_LIBCONTAINER_INITPIPE" };
	ssize_t n;
	size_t i;
	int fd;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (getenv(marks[i]))
			return 0;
	fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0; /* the program says so */
	n = read(fd, line, size);
	close(fd);
	return n > 0 && (size_t)n < size && line[n - 1] == 0 ? (size_t)n : 0;
}

/* Returns the base name of argv[0] in line. */
static const char *base_name(const char *line)
{
	const char *base = strrchr(line, '/');

	return base ? base + 1 : line;
}

#endif
