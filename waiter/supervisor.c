/* The supervisor's process: its channel, its namespaces, and what it inherits from the waiter. */
#define _GNU_SOURCE
#include "first.h"

#include "names.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* How many descriptors the supervisor has room for from the start; RLIMIT_NOFILE is 1024 by default. */
#define DESCRIPTORS 1024

/*
 * Makes room for the descriptors of some 50 apps. In a process of several threads, such as the supervisor, the kernel
 * waits for an RCU grace period whenever it enlarges the table (expand_fdtable in fs/file.c): ten milliseconds in which
 * no thread gets a new descriptor. A process of one thread does not wait, and keeps its table in execve. Without the
 * room the apps start more slowly.
 */
static void make_room_for_descriptors(int any)
{
	int last = fcntl(any, F_DUPFD_CLOEXEC, DESCRIPTORS - 1);

	if (last >= 0)
		close(last);
}

/* Becomes the supervisor: this program again, at its path in the new root. */
static void __attribute__((noreturn)) become_supervisor(int channel, uint32_t namespaces, const sigset_t *signals)
{
	char self[PATH_MAX], mark[32];
	char *args[] = { self, NULL };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		give_up("find own program");
	self[n] = 0;
	/* One that the host has stopped must go on to end with the waiter (lifeline.c). */
	if (prctl(PR_SET_PDEATHSIG, SIGCONT) < 0)
		give_up("set parent-death signal");
	enter_mount_namespace();
	make_room_for_descriptors(channel);
	if (fcntl(channel, F_SETFD, 0) < 0)
		give_up("keep channel");
	snprintf(mark, sizeof(mark), "%d,%u", channel, namespaces); /* read by TakeLine */
	if (setenv(SUPERVISOR_ENV, mark, 1) < 0)
		give_up("set " SUPERVISOR_ENV);
	sigprocmask(SIG_SETMASK, signals, NULL);
	execv(self, args);
	give_up("execute supervisor");
}

/* Makes the supervisor's channel. */
static void make_channel(int ends[2])
{
	int made[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, made) < 0)
		give_up("make channel");
	ends[0] = move_up(made[0]);
	ends[1] = move_up(made[1]);
}

int fork_supervisor(uint32_t namespaces, const sigset_t *signals, pid_t *supervisor)
{
	int ends[2];

	make_channel(ends);
	*supervisor = fork_into(namespaces);
	if (*supervisor < 0)
		give_up("fork");
	if (*supervisor == 0)
		become_supervisor(ends[1], namespaces, signals);
	close(ends[1]);
	return ends[0];
}
