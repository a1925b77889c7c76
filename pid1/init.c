/*
 * The pod's init: PID 1 of its PID namespace, or in the host's PID namespace a child subreaper. One thread that knows
 * no policy: it forks the processes that the supervisor asks for, collects all that end, and ends the pod with the
 * supervisor. init.h has the messages, child.c what a child does.
 *
 * Apps of user 0 are in the same PID namespace. What they can do to it:
 *   - signals: it ignores all but SIGCHLD, so that the kernel drops them when they are sent; SIGKILL and SIGSTOP of its
 *     own namespace do not reach PID 1 (pid_namespaces(7));
 *   - ptrace(2), /proc/1 and process_vm_readv(2): it is not dumpable, and outside of all Landlock domains;
 *   - its descriptors: the files of a start are open in it until the fork, and nothing else of the supervisor;
 *   - stop a child before that is its program: init continues it.
 */
#define _GNU_SOURCE
#include "init.h"

#include "calls.h"
#include "child.h"
#include "first.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int has_ready; /* the daemon's ready pipe */

/* The children that were started and have not ended. */
static struct started {
	pid_t pid;
	int starting; /* it is not its program yet */
} *children;
static size_t nchildren, room;

static struct started *find_child(pid_t pid)
{
	size_t i;

	for (i = 0; i < nchildren; i++)
		if (children[i].pid == pid)
			return &children[i];
	return NULL;
}

/* Makes room for one more child. Returns 0, or -1 with errno. */
static int make_room(void)
{
	struct started *more;

	if (nchildren < room)
		return 0;
	more = realloc(children, (room + 64) * sizeof(*more));
	if (more == NULL)
		return -1;
	children = more;
	room += 64;
	return 0;
}

static void say(const struct init_message *m) { init_send(init_file(INIT_CHANNEL), init_file(INIT_LIFELINE), m); }

/* How many processes init collects before it looks at its messages again: apps may make orphans as fast as it. */
#define COLLECTED_AT_ONCE 64

/* Collects processes that have ended, reports those that were started, and continues those that an app has stopped
 * on their way to their program. Returns whether there may be more. */
static int collect(void)
{
	struct init_message m = { .kind = INIT_ENDED };
	int status, n;

	for (n = 0; n < COLLECTED_AT_ONCE; n++) {
		pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
		struct started *child;

		if (pid <= 0)
			return 0;
		child = find_child(pid);
		if (child == NULL)
			continue;
		if (WIFSTOPPED(status)) {
			if (child->starting)
				kill(pid, SIGCONT);
			continue;
		}
		*child = children[--nchildren];
		m.number = pid;
		m.status = status;
		say(&m);
	}
	return 1;
}

/* Returns whether n descriptors have the numbers from first on. */
static int numbered(const int *files, int n, int first)
{
	int i;

	for (i = 0; i < n; i++)
		if (files[i] != first + i)
			return 0;
	return 1;
}

/* Waits for a packet. Returns 0 if the supervisor ends instead. */
static int await_packet(void)
{
	struct pollfd polled[] = { { init_file(INIT_CHANNEL), POLLIN, 0 }, { init_file(INIT_LIFELINE), 0, 0 } };

	while (poll(polled, 2, -1) < 0 && errno == EINTR)
		;
	return !polled[1].revents;
}

/* Receives the rest of a start's descriptors, which get the numbers 0, 1, 2 and so on. files has the n of the first
 * packet. Where numbers run out the kernel leaves some out; one is kept for the child's pidfd. Returns 0, or -1 with
 * errno. */
static int receive_rest(int *files, int n, uint32_t nfiles)
{
	struct init_message more = { 0 };
	uint32_t first = 0, rest = nfiles < (uint32_t)init_file(INIT_CHANNEL) ? nfiles : 0;

	while (n > 0 && (uint32_t)n == (rest < INIT_PACKET_FILES ? rest : INIT_PACKET_FILES) &&
	       numbered(files, n, (int)first)) {
		first += (uint32_t)n;
		rest -= (uint32_t)n;
		if (rest == 0)
			return 0;
		n = await_packet() ? init_receive(init_file(INIT_CHANNEL), &more, files, INIT_PACKET_FILES) : -1;
		if (more.kind != INIT_FILES)
			break;
	}
	errno = EMFILE;
	return -1;
}

/* Forks the child of a plan in the memfd. Returns its number, or -1 with errno and the call. */
static pid_t fork_child(int memfd, int cgroup, int *pidfd, uint32_t *call)
{
	struct child_plan *plan;
	struct stat st;
	int result;

	*call = INIT_MAP;
	if (make_room() < 0 || fstat(memfd, &st) < 0)
		return -1;
	plan = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd, 0);
	if (plan == MAP_FAILED)
		return -1;
	*call = INIT_SETNS;
	result = plan->pids && setns((int)plan->pids, CLONE_NEWPID) < 0 ? -errno : 0;
	if (result == 0) {
		*call = INIT_CLONE;
		result = child_fork(plan, cgroup, pidfd);
	}
	if (plan->pids && setns(init_file(INIT_PIDS), CLONE_NEWPID) < 0)
		abort(); /* the next child would be in another container's namespace */
	munmap(plan, (size_t)st.st_size);
	if (result > 0) {
		children[nchildren].pid = result;
		children[nchildren++].starting = 1;
		return result;
	}
	errno = -result;
	return -1;
}

/* Starts a child. files has the n descriptors of the first packet. */
static void start(const struct init_message *m, int *files, int n)
{
	struct init_message answer = { .kind = INIT_STARTED, .call = INIT_RECEIVE };
	int last = (int)m->nfiles - 1, pidfd = -1, error = 0;
	pid_t pid = -1;

	if (receive_rest(files, n, m->nfiles) == 0)
		pid = fork_child(m->in_cgroup ? last - 1 : last, m->in_cgroup ? last : -1, &pidfd, &answer.call);
	if (pid < 0)
		error = errno;
	/* Before the answer: whoever reads the end of an app's pipe must not wait for this copy. */
	close_between(0, pidfd < 0 ? init_file(INIT_CHANNEL) - 1 : pidfd - 1);
	if (pidfd >= 0)
		close_between(pidfd + 1, init_file(INIT_CHANNEL) - 1);
	if (pid > 0) {
		init_send_started(init_file(INIT_CHANNEL), init_file(INIT_LIFELINE), pid, pidfd);
		close(pidfd);
		return;
	}
	answer.error = error;
	say(&answer);
}

/* Sends SIGKILL to all processes of the pod. PID 1 is not killed, nor is the process that does it. */
static void kill_pod(uint32_t namespaces)
{
	char path[64];
	int child;
	FILE *f;

	if (namespaces & CLONE_NEWPID) { /* else -1 would be the host's processes */
		kill(-1, SIGKILL);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	if (f == NULL)
		return;
	while (fscanf(f, "%d", &child) == 1)
		kill(child, SIGKILL);
	fclose(f);
}

/* How long init waits for what it has killed: one in uninterruptible sleep must not prevent its end. */
#define KILL_TRIES 500
#define KILL_MS 10

/*
 * Ends the pod. Orphans of a child become init's children when that child is dead. If init has the ready pipe, it waits
 * for the supervisor's end: the daemon must not see the pipe's end first.
 */
static void __attribute__((noreturn)) end(uint32_t namespaces)
{
	struct pollfd supervisor = { has_ready ? init_file(INIT_SUPERVISOR) : -1, POLLIN, 0 };
	int tries;

	for (tries = 0; tries < KILL_TRIES; tries++) {
		pid_t pid;

		kill_pod(namespaces);
		do
			pid = waitpid(-1, NULL, WNOHANG);
		while (pid > 0);
		if (pid == 0)
			poll(NULL, 0, KILL_MS);
		else if (!has_ready || poll(&supervisor, 1, KILL_MS) > 0)
			break;
	}
	_exit(0);
}

/* From now on init has no ready pipe, and dies with the supervisor even when it is stopped. In the host's PID namespace
 * it must live to kill. */
static void give_up_ready(uint32_t namespaces)
{
	if (namespaces & CLONE_NEWPID)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(init_file(INIT_READY));
	has_ready = 0;
}

/* Handles a message. Returns 0 at the channel's end. */
static int take_message(uint32_t namespaces)
{
	struct init_message m = { 0 };
	int files[INIT_PACKET_FILES], n = init_receive(init_file(INIT_CHANNEL), &m, files, INIT_PACKET_FILES);
	struct started *child;

	if (n < 0)
		return 0;
	switch (m.kind) {
	case INIT_START:
		start(&m, files, n);
		break;
	case INIT_RUNS:
		child = find_child(m.number);
		if (child)
			child->starting = 0;
		break;
	case INIT_KILL:
		if (find_child(m.number))
			kill(m.number, SIGKILL);
		break;
	case INIT_UP:
		give_up_ready(namespaces);
		break;
	default: /* the rest of a start that has failed */
		close_between(0, init_file(INIT_CHANNEL) - 1);
	}
	return 1;
}

void init_serve(uint32_t namespaces, int ready)
{
	struct pollfd polled[] = {
		{ init_file(INIT_CHANNEL), POLLIN, 0 },
		{ init_file(INIT_SIGNALS), POLLIN, 0 },
		{ init_file(INIT_LIFELINE), 0, 0 }, /* for its end alone */
	};
	struct signalfd_siginfo signal;
	int more = 0;

	has_ready = ready;
	if (!ready)
		give_up_ready(namespaces);
	for (;;) {
		if (poll(polled, sizeof(polled) / sizeof(*polled), more ? 0 : -1) < 0 && errno != EINTR)
			end(namespaces);
		if (polled[1].revents || more) {
			while (read(init_file(INIT_SIGNALS), &signal, sizeof(signal)) > 0)
				;
			more = collect();
		}
		if (polled[2].revents || (polled[0].revents && !take_message(namespaces)))
			end(namespaces);
	}
}
