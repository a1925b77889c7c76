/*
 * The stager's first process, the one that the daemon knows: it waits.
 *
 *	daemon
 *	 └─ waiter             this file: has the supervisor stop the pod on SIGTERM,
 *	     │                 SIGINT and SIGQUIT, and ends as the supervisor ends
 *	     ├─ supervisor     the same program again, boot.Supervise: PID 1 of the pod
 *	     └─ guard          guard.c: one for each helper process
 *
 * The waiter stays for the life of the pod, so no Go runtime starts in it: it takes
 * half a megabyte instead of five, and little can fail. The supervisor ends with
 * the waiter, which holds the other ends of the supervisor's channel and of its
 * lifeline (lifeline.c).
 *
 * The waiter starts the supervisor in the namespaces that the pod seems to need (guess.c),
 * before anything has parsed the manifest. If the pod needs others, the supervisor
 * reports them on the channel and ends, and the waiter starts it again in them. waiter.h
 * describes the channel.
 *
 * The waiter also keeps the ready pipe open until the supervisor reports that the pod
 * is up: if the start fails, the daemon must not see that pipe's end before it can see
 * the stager's.
 */
#define _GNU_SOURCE
#include "waiter.h"

#include "first.h"
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Returns 1 in a stager: not in a call-in, not in "stager COMMAND", and in none of the processes that are this program
 * again. */
static int is_stager(void)
{
	char line[PATH_MAX];
	size_t n = read_arguments(line, sizeof(line));

	return n > 0 && strlen(line) + 1 == n && strcmp(base_name(line), STAGER_PROGRAM) == 0;
}

/* How long the waiter waits for children that it has killed: one in uninterruptible sleep must not
 * prevent the end of the stager. */
#define KILL_LIMIT_S 5

static int64_t milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int kill_all(void)
{
	char path[64];
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	while (fscanf(f, "%d", &child) == 1)
		kill(child, SIGKILL);
	fclose(f);
	return 1;
}

/* Kills the waiter's children and waits for them: helpers, and what a supervisor in
 * the waiter's PID namespace has left. Orphans of a child become the waiter's
 * children when that child is dead. */
static void kill_children(void)
{
	static const struct timespec moment = { 0, 10000000 };
	int64_t limit = milliseconds() + KILL_LIMIT_S * 1000;
	sigset_t ended;
	pid_t pid;

	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	while (kill_all()) {
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0)
			return; /* ECHILD: none is left */
		if (milliseconds() > limit) {
			fprintf(stderr, STAGER_PROGRAM ": processes survive SIGKILL\n");
			return;
		}
		sigtimedwait(&ended, NULL, &moment);
	}
}

/* Ends as the supervisor did. */
static void __attribute__((noreturn)) end_as(int status)
{
	kill_children();
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	fprintf(stderr, STAGER_PROGRAM ": supervisor was ended by signal %d\n", WTERMSIG(status));
	_exit(1);
}

/* Starts a supervisor in the namespaces and reads what it settles. If the supervisor ends
 * instead, so does the waiter. Returns the waiter's end of the supervisor's channel. */
static int start_supervisor(uint32_t namespaces, const sigset_t *signals, pid_t *supervisor,
			    struct waiter_request *settled)
{
	int channel, status;
	ssize_t n;

	/* A supervisor in the waiter's PID namespace leaves orphans to the waiter,
	 * see kill_children. */
	if (!(namespaces & CLONE_NEWPID) && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		give_up("become child subreaper");
	channel = fork_supervisor(namespaces, signals, supervisor);
	do
		n = recv(channel, settled, sizeof(*settled), 0);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*settled) && settled->kind == WAITER_SETTLE)
		return channel;
	/* The ready pipe is still open here, for the daemon not to see its end first. */
	if (waitpid(*supervisor, &status, 0) < 0)
		give_up("wait for supervisor");
	end_as(status);
}

/* Closes a descriptor of enum kept. No other one may get its number. */
static void vacate(int number)
{
	dup3(KEPT_SIGNALS, number, O_CLOEXEC);
}

/* Closes everything but stdio and the descriptors of enum kept. ready is the ready
 * pipe, or -1. */
static void keep_only(int channel, int ready, const sigset_t *signals)
{
	int awaited = move_up(signalfd(-1, signals, SFD_NONBLOCK));
	int number;

	/* The daemon may have put the ready pipe on a number of enum kept. */
	if (ready >= 0 && (ready = fcntl(ready, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)) < 0)
		give_up("keep ready pipe");
	if (dup3(channel, KEPT_CHANNEL, O_CLOEXEC) < 0 || dup3(awaited, KEPT_SIGNALS, O_CLOEXEC) < 0)
		give_up("keep channel");
	for (number = KEPT_READY; number < KEPT_END; number++)
		vacate(number);
	if (ready >= 0 && dup3(ready, KEPT_READY, O_CLOEXEC) < 0)
		give_up("keep ready pipe");
	close_between(KEPT_END, INT_MAX);
}

/* Releases the pages of the program that only the start needed; the kernel reloads
 * the few that are used again from the page cache. Nothing depends on this advice: without it
 * the waiter has a PSS of 970 KiB instead of 420. */
static void release_start_memory(void)
{
	extern char __executable_start[], etext[];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)__executable_start & ~(page - 1);

	madvise((void *)start, ((uintptr_t)etext - start) & ~(page - 1), MADV_DONTNEED);
}

/* How long the waiter waits for the kernel to have memory again for an order. */
#define MEMORY_RETRY_MS 10

/* Has the supervisor stop the pod. If the channel is full, earlier orders are in it; if the
 * supervisor is ending, the pod is. Out of memory, the kernel refuses an order that the
 * daemon will not repeat: the waiter tries until there is memory, or no supervisor. */
static void order_stop(void)
{
	uint32_t order = WAITER_STOP;

	while (send(KEPT_CHANNEL, &order, sizeof(order), MSG_DONTWAIT) < 0 && (errno == ENOBUFS || errno == ENOMEM))
		poll(NULL, 0, MEMORY_RETRY_MS);
}

/* Passes the daemon's signals on as orders, and ends with the supervisor. */
static void take_signals(pid_t supervisor)
{
	struct signalfd_siginfo signal;
	int status;
	pid_t pid;

	while (read(KEPT_SIGNALS, &signal, sizeof(signal)) == (ssize_t)sizeof(signal))
		if (signal.ssi_signo != SIGCHLD && signal.ssi_signo != SIGPIPE)
			order_stop();
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == supervisor)
			end_as(status);
}

/* Keeps the descriptors of WAITER_LIFELINE. */
static void keep_lifeline(const int *files, int nfiles)
{
	if (nfiles != 2 || dup3(files[0], KEPT_LIFELINE, O_CLOEXEC) < 0 || dup3(files[1], KEPT_PIDS, O_CLOEXEC) < 0)
		give_up("keep lifeline");
}

/* Handles a request of the supervisor. Returns 0 when no more requests will come. */
static int take_request(void)
{
	union { /* aligned as cmsg(3) says */
		struct cmsghdr align;
		char space[CMSG_SPACE((WAITER_FILES + WAITER_MAX_FILES) * sizeof(int))];
	} control;
	struct waiter_request request;
	struct iovec data = { &request, sizeof(request) };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	ssize_t n = recvmsg(KEPT_CHANNEL, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *head;
	int *files = NULL, nfiles = 0, i;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0)
		return 0;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		files = (int *)(void *)CMSG_DATA(head);
		nfiles = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	}
	if (n == (ssize_t)sizeof(request) && request.kind == WAITER_UP)
		vacate(KEPT_READY);
	if (n == (ssize_t)sizeof(request) && request.kind == WAITER_LIFELINE)
		keep_lifeline(files, nfiles);
	if (n == (ssize_t)sizeof(request) && request.kind == WAITER_HELPER)
		start_guard(files, nfiles, request.own_mounts != 0);
	for (i = 0; i < nfiles; i++)
		close(files[i]);
	return 1;
}

/* How long a dying supervisor may take before the waiter kills the pod. Most take some milliseconds. */
#define DYING_LIMIT_MS 100

static void __attribute__((noreturn)) wait_for(pid_t supervisor)
{
	struct pollfd channel = { KEPT_CHANNEL, POLLIN, 0 }, signals = { KEPT_SIGNALS, POLLIN, 0 };
	struct pollfd lifeline = { KEPT_LIFELINE, 0, 0 }; /* for its end alone */
	struct pollfd polled[] = { signals, channel, lifeline };
	int limit = -1;

	for (;;) {
		int n = poll(polled, sizeof(polled) / sizeof(*polled), limit);

		if (n < 0 && errno != EINTR)
			give_up("poll");
		take_signals(supervisor);
		if (n == 0)
			kill_pod();
		if (polled[1].revents && !take_request())
			polled[1].fd = -1; /* the supervisor is ending */
		if (polled[2].revents) { /* it is dying */
			polled[2].fd = -1;
			limit = DYING_LIMIT_MS;
		}
	}
}

/*
 * Blocks the signals that the waiter reads from a signalfd, so that none is lost before
 * there is a supervisor to get it, and SIGPIPE. An ignored SIGCHLD would lose a child's
 * status (wait(2)), and the supervisor would ignore what its parent does: what the daemon
 * ignores ends here.
 */
static void block_signals(sigset_t *signals, sigset_t *before)
{
	static const int awaited[] = { SIGTERM, SIGINT, SIGQUIT, SIGCHLD, SIGPIPE };
	size_t i;

	sigemptyset(signals);
	for (i = 0; i < sizeof(awaited) / sizeof(*awaited); i++)
		sigaddset(signals, awaited[i]);
	sigprocmask(SIG_BLOCK, signals, before);
	for (i = 0; i < sizeof(awaited) / sizeof(*awaited); i++)
		signal(awaited[i], SIG_DFL);
}

static void __attribute__((constructor)) waiter(void)
{
	uint32_t namespaces;
	struct waiter_request settled;
	sigset_t signals, before;
	pid_t supervisor;
	int channel;

	if (!is_stager())
		return;
	umask(022); /* whatever the daemon's is: files are made in the stager's root */
	block_signals(&signals, &before);
	enter_leaf();
	namespaces = guess_namespaces();
	for (;;) {
		channel = start_supervisor(namespaces, &before, &supervisor, &settled);
		if (settled.namespaces == namespaces)
			break;
		waitpid(supervisor, NULL, 0);
		namespaces = settled.namespaces;
	}
	keep_only(channel, settled.ready, &signals);
	protect_from_oom();
	release_start_memory();
	wait_for(supervisor);
}
