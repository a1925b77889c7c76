/*
 * How the shim (shim.c) reads its plan, from a memfd: a header, numbers, and strings that each end with NUL.
 */
#ifndef STAGER_PLAN_H
#define STAGER_PLAN_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reports that the plan cannot be read, and exits. Each file that includes this header defines it. */
static void __attribute__((noreturn)) bad_plan(int error);

/* The part of the plan that is not read yet. */
struct cursor {
	const char *at, *end;
};

/* Reads n elements of a size from the plan. */
static const void *take(struct cursor *c, uint32_t n, size_t size)
{
	const void *taken = c->at;

	if ((size_t)(c->end - c->at) / size < n)
		bad_plan(EINVAL);
	c->at += n * size;
	return taken;
}

/* Reads n strings from the plan into a NULL-terminated vector with room for one more. */
static char **take_strings(struct cursor *c, uint32_t n)
{
	char **v;
	uint32_t i;

	if ((size_t)(c->end - c->at) < n) /* each has at least its NUL */
		bad_plan(EINVAL);
	/* Not by malloc(3): in a fork of a program with threads, another one's lock stays locked for ever. */
	v = mmap(NULL, ((size_t)n + 2) * sizeof(*v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v == MAP_FAILED)
		bad_plan(errno);
	for (i = 0; i < n; i++) {
		v[i] = (char *)c->at;
		take(c, (uint32_t)strnlen(c->at, (size_t)(c->end - c->at)) + 1, 1);
	}
	return v;
}

/* Maps the plan and reads its header, which has a number of bytes; an empty file cannot be mapped. The cursor is behind
 * the header; its end is the plan's, which the caller compares with the size in the header. */
static const void *map_plan(int fd, size_t header, struct cursor *c)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		bad_plan(errno);
	c->at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (c->at == MAP_FAILED)
		bad_plan(errno);
	c->end = c->at + st.st_size;
	return take(c, 1, header);
}

/* Resets the signal handling that a child inherits: from init, from libcontainer's Go runtime, or from the daemon. */
static void reset_signals(void)
{
	static const unsigned long action[5]; /* SIG_DFL, no flags, nothing blocked */
	sigset_t none;
	int s;

	/* signal(3) refuses the signals that the C library uses itself. */
	for (s = 1; s < 65; s++)
		syscall(SYS_rt_sigaction, s, action, NULL, 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

#endif
