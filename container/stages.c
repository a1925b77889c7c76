/*
 * Continues the processes of a start that an app has stopped.
 *
 * The processes by which a container starts are in the pod's PID namespace, where a root app can send
 * SIGSTOP to the PIDs that come next. The first of them shares the supervisor's memory until its exec:
 * the Go runtime forks with CLONE_VFORK, and the forking thread waits in the kernel with a P. While it
 * waits, no stop-the-world passes, and with the next garbage collection the whole supervisor would
 * wait for the stopped process.
 *
 * So this is a thread in C, which the Go runtime does not know:
 *
 *	app ── SIGSTOP ──► process of a start ── stopped ──► waitid(2) of this thread
 *	                     ▲                                 │ is it this program?
 *	                     └──────────── SIGCONT ────────────┘
 *
 * Apps can send SIGSTOP again as fast as this thread sends SIGCONT. A process that shares the
 * supervisor's memory is killed when it is still being stopped after VFORK_LIMIT, so that the rest of
 * the supervisor waits no longer; its start fails. The later processes of a start block that
 * start only, and spec.StartLimit ends it. So do the forks of the direct runtime, which have nothing that others wait
 * for (forker.c).
 *
 * An app that has stopped itself, or another app, stays stopped: it is another program. But a SIGSTOP that
 * was sent before the last exec of a start stops the app: where the process was stopped as one of the start just
 * before, this thread continues the app as well. waitid(2)
 * takes the report of a stop here, and nothing else in the supervisor asks for those; it
 * collects no process (no WEXITED).
 */
#define _GNU_SOURCE
#include "stages.h"

#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long a process that shares the supervisor's memory may be kept from its next step. */
#define VFORK_LIMIT_NS 100000000L
/* A stop of an app this soon after a stop of its start comes from a signal that was sent before the exec. */
#define JUST_NOW_NS 100000000L
/* A process that was stopped longer ago than this is another one with the same PID. */
#define FORGET_NS 2000000000L

static _Atomic uint32_t starts; /* under way; a futex */

/* What distinguishes a program in /proc/PID/stat (proc_pid_stat(5)): the sizes of its code and data,
 * and their distance. A process of another program may have the same addresses, a copy of
 * this program may have others. */
struct program {
	unsigned long code, data, distance;
};

/* Reads the program of a process. Returns 0 when there is no such process, or it is a zombie. */
static int read_program(const char *path, struct program *p)
{
	enum { STATE = 3, START_CODE = 26, END_CODE = 27, START_DATA = 45, END_DATA = 46 };
	unsigned long value[END_DATA + 1] = { 0 };
	char text[1024], *at;
	ssize_t n;
	int fd, i;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	at = strrchr(text, ')'); /* the name before it may hold anything */
	if (at == NULL)
		return 0;
	at = strchr(at + 2, ' '); /* the state is a letter */
	for (i = STATE + 1; at && i <= END_DATA; i++)
		value[i] = strtoul(at, &at, 10);
	p->code = value[END_CODE] - value[START_CODE];
	p->data = value[END_DATA] - value[START_DATA];
	p->distance = value[START_DATA] - value[START_CODE];
	return value[START_CODE] > 1; /* without memory, or leave to look, it is 0 or 1 */
}

/* Returns whether a process executes this program. */
static int is_this_program(pid_t pid, const struct program *own)
{
	struct program p;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_program(path, &p) && p.code == own->code && p.data == own->data && p.distance == own->distance;
}

/* Returns whether the whole supervisor waits for a child, which shares its memory. A kernel without kcmp(2) cannot
 * tell; then any process of a start has to be done in VFORK_LIMIT. */
static int delays_others(pid_t pid)
{
	return syscall(SYS_kcmp, getpid(), pid, KCMP_VM, 0, 0) <= 0;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The processes of starts that were stopped last: when first and last. */
static struct stopped {
	pid_t pid;
	int64_t first, last;
} recent[256];

/* Returns what is known of a process, NULL for nothing. */
static struct stopped *find_recent(pid_t pid, int64_t time)
{
	size_t i;

	for (i = 0; i < sizeof(recent) / sizeof(*recent); i++)
		if (recent[i].pid == pid && time - recent[i].last <= FORGET_NS)
			return &recent[i];
	return NULL;
}

/* Notes a stop, and returns for how long the process is being stopped. The entry that was used first is used again. */
static int64_t remember(pid_t pid, int64_t time)
{
	struct stopped *s = find_recent(pid, time);

	if (s == NULL) {
		static size_t next;

		s = &recent[next++ % (sizeof(recent) / sizeof(*recent))];
		s->pid = pid;
		s->first = time;
	}
	s->last = time;
	return time - s->first;
}

/* Returns whether a process was stopped as one of a start just now. */
static int was_stopped(pid_t pid, int64_t time)
{
	const struct stopped *s = find_recent(pid, time);

	return s && time - s->last < JUST_NOW_NS;
}

/* Continues a stopped process of a start, or kills it. The PID cannot be another process's by now: only the
 * start collects the process, and it is waiting. */
static void take_stop(pid_t pid, const struct program *own)
{
	int64_t time = now();

	if (!is_this_program(pid, own)) {
		if (was_stopped(pid, time))
			kill(pid, SIGCONT);
		return;
	}
	kill(pid, remember(pid, time) > VFORK_LIMIT_NS && delays_others(pid) ? SIGKILL : SIGCONT);
}

/* Waits until there may be a child: until a start is under way, then a moment at a time. */
static void await_child(void)
{
	static const struct timespec moment = { 0, 1000000 };

	if (atomic_load(&starts) == 0)
		syscall(SYS_futex, &starts, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	else
		nanosleep(&moment, NULL);
}

static void *watch(void *unused)
{
	struct program own;
	siginfo_t stopped;

	(void)unused;
	if (!read_program("/proc/self/stat", &own))
		return NULL;
	for (;;) {
		/* Go tries clone(2) once with a child that reports its end by no signal (os, checkClonePidfd):
		 * one that only __WALL sees. */
		if (waitid(P_ALL, 0, &stopped, WSTOPPED | __WALL) == 0)
			take_stop(stopped.si_pid, &own);
		else if (errno != EINTR)
			await_child();
	}
	return NULL;
}

int stages_watch(void)
{
	static atomic_flag started = ATOMIC_FLAG_INIT;
	pthread_t thread;
	int error;

	if (atomic_flag_test_and_set(&started))
		return 0;
	error = start_thread(&thread, watch, NULL);
	if (error)
		atomic_flag_clear(&started);
	else
		pthread_detach(thread);
	return error;
}

void stages_mark(int change)
{
	atomic_fetch_add(&starts, (uint32_t)change);
	if (change > 0)
		syscall(SYS_futex, &starts, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
