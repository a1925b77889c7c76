/*
 * The stager's first process, the one that the daemon knows: it waits.
 *
 *	daemon
 *	 └─ waiter             this file; passes SIGTERM, SIGINT and SIGQUIT on, and
 *	     │                 ends as the supervisor ends
 *	     ├─ stage          stage.go; checks the manifest, starts the supervisor
 *	     │                 as the waiter's child, and is gone
 *	     └─ supervisor     boot.go, PID 1 of the pod
 *
 * It stays for the life of the pod, so it is forked off before the Go runtime
 * starts: a tenth of a megabyte instead of three, and nothing in it that could fail. The
 * supervisor dies with it: it holds the other end of the lifeline, and is the
 * parent that PR_SET_PDEATHSIG is about.
 */
#define _GNU_SOURCE
#include "waiter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int waiter_lifeline = -1, waiter_report = -1;

/* Only a stager waits: no call-in, no "stager COMMAND", none of the processes
 * that are this program again. */
static int is_stager(int argc, char **argv)
{
	static const char *const others[] = { "status", "logs", "run", "attach" };
	static const char *const marks[] = { "_STAGER_SUPERVISOR", "_STAGER_SHIM", "_LIBCONTAINER_INITPIPE" };
	const char *base;
	size_t i;

	if (argc != 1)
		return 0;
	base = strrchr(argv[0], '/');
	base = base ? base + 1 : argv[0];
	for (i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (strcmp(base, others[i]) == 0)
			return 0;
	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (getenv(marks[i]))
			return 0;
	return 1;
}

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "stager: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Keeps the lifeline and the report and lets go of everything else but stdio:
 * the ready pipe is for the supervisor to close. */
static void keep_only(int *lifeline, int *report)
{
	int keep[2], fd;
	long max = sysconf(_SC_OPEN_MAX);

	/* Out of the way of 3 and 4 first. */
	keep[0] = fcntl(*lifeline, F_DUPFD_CLOEXEC, 10);
	keep[1] = fcntl(*report, F_DUPFD_CLOEXEC, 10);
	if (keep[0] < 0 || keep[1] < 0)
		give_up("keep descriptors");
	*lifeline = dup2(keep[0], 3);
	*report = dup2(keep[1], 4);
	if (*lifeline < 0 || *report < 0)
		give_up("keep descriptors");
	if (close_range(5, ~0U, 0) == 0)
		return;
	for (fd = 5; fd < max; fd++)
		close(fd);
}

/* Reads whom to wait for; end of file means that there is nobody but the
 * stage, which has said why. */
static struct waiter_pids read_report(int fd, pid_t stage)
{
	struct waiter_pids pids;
	ssize_t n;

	do
		n = read(fd, &pids, sizeof(pids));
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(pids)) {
		pids.signalled = 0;
		pids.awaited = stage;
	}
	close(fd);
	return pids;
}

/* Ends as the awaited process did. */
static void end_as(int status)
{
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	fprintf(stderr, "stager: supervisor was ended by signal %d\n", WTERMSIG(status));
	_exit(1);
}

static void reap(pid_t awaited)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == awaited)
			end_as(status);
}

/* Gives back the pages of the program that only the start needed; the few that
 * are used again come back from the page cache. Advice: nothing depends on it. */
static void release_start_memory(void)
{
	extern char __executable_start[], etext[];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)__executable_start & ~(page - 1);

	madvise((void *)start, ((uintptr_t)etext - start) & ~(page - 1), MADV_DONTNEED);
}

static void __attribute__((noreturn)) wait_for_pod(const sigset_t *signals, struct waiter_pids pids)
{
	release_start_memory();
	for (;;) {
		int signal;

		reap(pids.awaited);
		signal = sigwaitinfo(signals, NULL);
		if (signal > 0 && signal != SIGCHLD && pids.signalled > 0)
			kill(pids.signalled, signal);
	}
}

static void __attribute__((constructor)) waiter(int argc, char **argv)
{
	int lifeline[2], report[2];
	sigset_t signals, before;
	pid_t stage;

	if (!is_stager(argc, argv))
		return;
	/* Blocked until somebody is there to get them: none is lost. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGQUIT);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (pipe2(lifeline, O_CLOEXEC) < 0 || pipe2(report, O_CLOEXEC) < 0)
		give_up("make pipe");
	stage = fork();
	if (stage < 0)
		give_up("fork");
	if (stage == 0) {
		close(lifeline[1]);
		close(report[0]);
		waiter_lifeline = lifeline[0];
		waiter_report = report[1];
		sigprocmask(SIG_SETMASK, &before, NULL);
		return;
	}
	keep_only(&lifeline[1], &report[0]);
	wait_for_pod(&signals, read_report(report[0], stage));
}
